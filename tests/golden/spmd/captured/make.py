"""Writes the models of this folder: exported by PyTorch 2.13 (onnx 1.23, onnxscript 0.7), with the
data of one batch and the losses of three steps of gradient descent as PyTorch trains them.

    python make.py    where torch, onnx and onnxscript can be imported

mlp.onnx      by torch.export, with its parameters' names
gpt.onnx      by torch.export, attention as F.scaled_dot_product_attention, "batch" left open; it and
              its data are in docs/examples too
gpt-14.onnx   by tracing, operator set 14: norms and gelu are taken apart
llama.onnx    by tracing: rotary positions, grouped heads, its mask computed
llama-e.onnx  by torch.export
"""

import json
import pathlib
import struct

import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
RATE, STEPS = 0.1, 3


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, target):
        return F.mse_loss(self.down(torch.relu(self.up(x))), target)


class Gpt(nn.Module):
    def __init__(self, width=8, heads=2, words=16, tokens=4):
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(words, width)
        self.positions = nn.Parameter(torch.randn(tokens, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids, labels):
        x = self.table(ids) + self.positions
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (one.view(batch, tokens, self.heads, -1).transpose(1, 2) for one in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return F.cross_entropy(self.head(self.norm3(x)).flatten(0, 1), labels.flatten())


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    def __init__(self, width=16, heads=4, key_heads=2, hidden=24, words=16, tokens=4):
        super().__init__()
        self.heads, self.key_heads, self.each = heads, key_heads, width // heads
        self.table = nn.Embedding(words, width)
        self.norm1, self.norm2, self.norm3 = RmsNorm(width), RmsNorm(width), RmsNorm(width)
        linear = lambda a, b: nn.Linear(a, b, bias=False)
        self.q, self.out = linear(width, width), linear(width, width)
        self.k, self.v = linear(width, key_heads * self.each), linear(width, key_heads * self.each)
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)
        self.head = linear(width, words)
        angles = torch.outer(torch.arange(tokens).float(), 10000 ** (-torch.arange(0, self.each, 2) / self.each))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin

    def forward(self, ids, labels):
        x = self.table(ids)
        batch, tokens, width = x.shape
        shape = lambda y, heads: y.view(batch, tokens, heads, self.each).transpose(1, 2)
        n = self.norm1(x)
        q = self.turned(shape(self.q(n), self.heads))
        k, v = self.turned(shape(self.k(n), self.key_heads)), shape(self.v(n), self.key_heads)
        served = self.heads // self.key_heads
        repeated = lambda y: y[:, :, None].expand(
            batch, self.key_heads, served, tokens, self.each).reshape(batch, self.heads, tokens, self.each)
        scores = q @ repeated(k).transpose(-1, -2) / self.each**0.5
        shares = torch.softmax(scores + torch.full((tokens, tokens), float("-inf")).triu(1), -1)
        x = x + self.out((shares @ repeated(v)).transpose(1, 2).reshape(batch, tokens, width))
        n = self.norm2(x)
        x = x + self.down(F.silu(self.gate(n)) * self.up(n))
        return F.cross_entropy(self.head(self.norm3(x)).flatten(0, 1), labels.flatten())


def save_tensors(path, tensors):
    kinds = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        own = tensor.numpy().tobytes()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def trained(model, inputs, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(*inputs.values())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def small(path):
    """Without what says where each node stood in the source."""
    model = onnx.load(path)
    del model.graph.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in model.graph.value_info:
        for entry in [one for one in value.metadata_props if "InputSpec.kind" not in one.key]:
            value.metadata_props.remove(entry)
    onnx.save(model, path)


def with_optimizers(words):
    """Of gpt, by the names of pipewright's optimizers."""
    losses = {}
    for name, kind in (("momentum", lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9)),
                       ("adamw", lambda p: torch.optim.AdamW(p, lr=0.01))):
        model = moved(Gpt)
        losses[name] = trained(model, words, kind(model.parameters()))
    return losses


def moved(kind):
    """With no two parameters alike, which exporters would make one."""
    torch.manual_seed(1)
    model = kind()
    with torch.no_grad():
        for one in model.parameters():
            one += 0.2 * torch.randn_like(one)
    return model


def main():
    expected = {}
    ids, labels = torch.randint(0, 16, (2, 4, 4), generator=torch.Generator().manual_seed(3))
    words = {"ids": ids, "labels": labels}
    for name, kind, by_export, opset, batch in (("mlp", Mlp, True, None, False), ("gpt", Gpt, True, None, True),
                                                ("gpt-14", Gpt, False, 14, True), ("llama", Llama, False, None, False),
                                                ("llama-e", Llama, True, None, False)):
        model = moved(kind)
        inputs = words if kind is not Mlp else {"x": torch.randn(8, 8), "target": torch.randn(8, 4)}
        path = HERE / f"{name}.onnx"
        if by_export:
            dims = tuple({0: torch.export.Dim("batch")} for _ in inputs) if batch else None
            more = {"dynamic_shapes": dims, "external_data": False}
        else:
            more = {"dynamic_axes": {one: {0: "batch"} for one in inputs}} if batch else {}
        torch.onnx.export(model, tuple(inputs.values()), str(path), input_names=list(inputs), output_names=["loss"],
                          dynamo=by_export, opset_version=opset, verbose=False, **more)
        small(path)
        save_tensors(HERE / ("words-data.safetensors" if inputs is words else "mlp-data.safetensors"), inputs)
        expected[name] = trained(model, inputs)
    expected["gpt with"] = with_optimizers(words)
    (HERE / "losses.json").write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    main()
