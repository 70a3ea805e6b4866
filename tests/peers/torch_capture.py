"""Modules of PyTorch, exported by tracing, captured by `pipewright spmd capture`, and trained by `pipewright spmd run`
from their own weights: losses of three steps are those of torch.optim.SGD, on one rank and on two that divide the data.
A small module for each operator, in the forms in which exporters write it. Exit status 77 (skipped) where torch or
onnx, which it exports with, is missing."""

import contextlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import warnings

SKIPPED = 77
MOST_DIFFERENCE = 1e-5  # of losses, relative
STEPS, RATE = 3, 0.01
OPSETS = (14, 17, 20)


def modules(torch):
    """By name: what is made of x [4, 6, 8] and a parameter w [8], both between 0.5 and 1.5 in size."""
    nn, F = torch.nn, torch.nn.functional
    unary = {
        name: getattr(torch, name) for name in ("abs", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid",
                                                "erf", "reciprocal", "neg", "relu", "square")
    }
    made = {name: (lambda f: lambda x, w: f(x * w))(f) for name, f in unary.items()}
    made |= {
        "silu": lambda x, w: F.silu(x * w),
        "gelu": lambda x, w: F.gelu(x - w),
        "gelu_tanh": lambda x, w: F.gelu(x - w, approximate="tanh"),
        "divide": lambda x, w: x / w,
        "number_over": lambda x, w: 2 / (x * w),
        "over_number": lambda x, w: x * w / 3,
        "number_minus": lambda x, w: 1 - x * w,
        "minus_number": lambda x, w: x * w - 0.25,
        "power": lambda x, w: (x * w)**3,
        "power_of": lambda x, w: x**w,
        "maximum": lambda x, w: torch.maximum(x, w),
        "minimum": lambda x, w: torch.minimum(x, w),
        "softmax": lambda x, w: torch.softmax(x * w, -1),
        "softmax_first": lambda x, w: torch.softmax(x * w, 1),
        "log_softmax": lambda x, w: torch.log_softmax(x * w, -1),
        "layer_norm": lambda x, w: F.layer_norm(x * w, (8, ), w, w),
        "layer_norm_other": lambda x, w: F.layer_norm(x * w, (6, 8), eps=1e-3),
        "sum": lambda x, w: (x * w).sum(1),
        "mean_kept": lambda x, w: (x * w).mean((1, 2), keepdim=True),
        "transpose": lambda x, w: (x * w).transpose(1, 2) @ x,
        "matmul": lambda x, w: (x * w) @ x.transpose(1, 2),
        "chunk": lambda x, w: torch.mul(*(x * w).chunk(2, -1)),
        "split": lambda x, w: (x * w).split((2, 6), -1)[1],
        "cat": lambda x, w: torch.cat((x * w, x), 1),
        "stack": lambda x, w: torch.stack((x * w, x), 1),
        "slice": lambda x, w: (x * w)[:, 1:-2],
        "select": lambda x, w: (x * w)[:, 2],
        "expand": lambda x, w: w.expand(4, 6, 8) * x,
        "repeat": lambda x, w: (x * w).repeat(1, 2, 1),
        "pad": lambda x, w: F.pad(x * w, (1, 2)),
        "tril": lambda x, w: (x * w).tril(-1),
        "masked": lambda x, w: (x * w).masked_fill(torch.ones(6, 8).triu(1).bool(), 0.5),
        "where": lambda x, w: torch.where(torch.ones(6, 1).cumsum(0) > 3, x * w, x),
        "flatten": lambda x, w: (x * w).flatten(1),
        "view": lambda x, w: (x * w).view(x.shape[0], -1, 4).sum(-1),
        "unsqueeze": lambda x, w: (x * w).unsqueeze(2).squeeze(2),
        "positions": lambda x, w: x * w + torch.arange(x.shape[1]).float()[:, None],
        "dropout": lambda x, w: F.dropout(x * w, 0.5, training=False),
        "linear": lambda x, w: F.linear(x, w.repeat(3, 1), w[:3]),
        "attention": lambda x, w: F.scaled_dot_product_attention(x * w, x, x),
        "causal": lambda x, w: F.scaled_dot_product_attention(x * w, x, x, is_causal=True),
        "addmm": lambda x, w: torch.addmm(w, x[:, 0], x.flatten(0, 1)[:8] * w, beta=0.5, alpha=2),
        "logsumexp_by_hand": lambda x, w: (x * w).exp().sum(-1).log(),
    }

    class Module(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f, self.w = f, nn.Parameter(0.5 + torch.rand(8))

        def forward(self, x):
            y = self.f(x, self.w)
            return (y * (y + 0.5)).mean()

    return {name: Module(f) for name, f in made.items()}


def save_tensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        own = tensor.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def losses_of(torch, module, x):
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=RATE), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = module(x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def call(command, folder, *words):
    done = subprocess.run([command, "spmd", *words, "-q"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"spmd {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def captured_losses(command, folder, divided):
    call(command, folder, "capture", "model.onnx", "--dimension", "batch=4", "--mesh", "2", "-o", "graph.json",
         "--weights", "weights.safetensors")
    if divided:
        graph = json.loads((folder / "graph.json").read_text())
        graph["tensors"]["x"]["annotation"] = {"mesh": "devices", "placements": ["S0"]}
        (folder / "graph.json").write_text(json.dumps(graph))
    return json.loads(call(command, folder, "run", "graph.json", "--weights", "weights.safetensors", "--weights",
                           "batch.safetensors", "--learning-rate", str(RATE), "--json"))["losses"]


def export(torch, module, x, path, opset):
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x, ), str(path), input_names=["x"], output_names=["loss"], opset_version=opset,
                          dynamo=False, dynamic_axes={"x": {0: "batch"}},
                          do_constant_folding=False)  # which would make weights of their copies


def main():
    try:
        import onnx  # noqa: F401, which torch.onnx needs
        import torch
    except ImportError as error:
        print(f"skipped: PyTorch or onnx is not installed here ({error})")
        return SKIPPED
    command, failed, compared = os.path.abspath(sys.argv[1]), 0, 0
    torch.manual_seed(0)
    for name, module in modules(torch).items():
        x = 0.5 + torch.rand(4, 6, 8)
        for opset in OPSETS:
            with tempfile.TemporaryDirectory() as text:
                folder = pathlib.Path(text)
                export(torch, module, x, folder / "model.onnx", opset)
                save_tensors(folder / "batch.safetensors", {"x": x})
                weights = {key: value.clone() for key, value in module.state_dict().items()}
                expected = losses_of(torch, module, x)
                module.load_state_dict(weights)
                for divided in (False, True):
                    try:
                        found = captured_losses(command, folder, divided)
                    except RuntimeError as error:
                        print(f"{name}, operator set {opset}: {error}")
                        failed += 1
                        continue
                    compared += 1
                    if any(abs(a - b) > MOST_DIFFERENCE * abs(b) for a, b in zip(found, expected, strict=True)):
                        print(f"{name}, operator set {opset}, divided {divided}: {found}, and PyTorch {expected}")
                        failed += 1
    print(f"{compared} trainings of captured modules have PyTorch's losses, {failed} do not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
