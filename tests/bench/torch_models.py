"""Models as plans name them, written with PyTorch's own layers: one module for each layer of the plan that a stage may begin
with. For timings: the weights are PyTorch's."""

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, inner, shortcut=None):
        super().__init__()
        self.inner, self.shortcut = inner, shortcut

    def forward(self, x):
        return (x if self.shortcut is None else self.shortcut(x)) + self.inner(x)


class SwiGlu(nn.Module):
    def forward(self, x):
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up


class Embedding(nn.Module):
    def __init__(self, vocabulary, width, positions):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width) if positions else None

    def forward(self, tokens):
        x = self.words(tokens)
        return x if self.positions is None else x + self.positions.weight[: tokens.shape[1]]


class Attention(nn.Module):
    """Causal; with a rotary_base places turn queries and keys."""

    def __init__(self, width, heads, kv_heads, bias, rotary_base, sequence):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.turns = None
        if rotary_base:
            angles = torch.outer(
                torch.arange(sequence), rotary_base ** (-torch.arange(0, self.size, 2) / self.size)
            ).repeat(1, 2)
            self.turns = (angles.cos(), angles.sin())

    def turned(self, x):
        if self.turns is None:
            return x
        first, second = x.chunk(2, -1)
        return x * self.turns[0] + torch.cat((-second, first), -1) * self.turns[1]

    def forward(self, x):
        parts = self.qkv(x).split([n * self.size for n in (self.heads, self.kv_heads, self.kv_heads)], -1)
        q, k, v = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    """Each row through top_k of them, as Mixtral's router deals them out."""

    def __init__(self, width, ffn, experts, top_k):
        super().__init__()
        self.top_k, self.router = top_k, nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([gated(width, ffn) for _ in range(experts)])

    def forward(self, x):
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1).topk(self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            result = result.index_add(0, row, weights[row, place, None] * expert(rows[row]))
        return result.view_as(x)


def gated(width, ffn):
    return nn.Sequential(nn.Linear(width, 2 * ffn, bias=False), SwiGlu(), nn.Linear(ffn, width, bias=False))


def transformer_layers(shape):
    """Embedding, blocks, and the last norm with the head."""
    width, is_llama = shape["hidden"], shape.get("style") == "llama"
    kv_heads = shape.get("kv_heads", shape["heads"])
    ffn = shape.get("ffn", 4 * width)

    def norm():
        return nn.RMSNorm(width) if is_llama else nn.LayerNorm(width)

    def block():
        rotary = shape.get("rotary_base", 10000) if is_llama else 0
        attention = Attention(width, shape["heads"], kv_heads, not is_llama, rotary, shape["sequence"])
        if "experts" in shape:
            feed = Experts(width, ffn, shape["experts"], shape["top_k"])
        elif is_llama:
            feed = gated(width, ffn)
        else:
            feed = nn.Sequential(nn.Linear(width, ffn), nn.GELU(), nn.Linear(ffn, width))
        return nn.Sequential(
            Residual(nn.Sequential(norm(), attention)), Residual(nn.Sequential(norm(), feed))
        )

    words = Embedding(shape["vocabulary"], width, 0 if is_llama else shape["sequence"])
    head = nn.Sequential(norm(), nn.Linear(width, shape["vocabulary"], bias=not is_llama))
    return [words, *[block() for _ in range(shape["layers"])], head]


def layer_of(layer):
    """Of a model that is written layer by layer: the kinds that the bench's models have."""
    kind = layer["kind"]
    channels, height, width = layer.get("image", (0, 0, 0))
    if kind in ("sequential", "residual"):
        inner = nn.Sequential(*map(layer_of, layer["layers"]))
        if kind == "sequential":
            return inner
        shortcut = layer.get("shortcut")
        return Residual(inner, nn.Sequential(*map(layer_of, shortcut)) if shortcut else None)
    if kind == "linear":
        return nn.Linear(layer["in"], layer["out"], bias=layer.get("bias", True))
    if kind == "conv2d":
        sizes = {name: layer[name] for name in ("stride", "padding", "groups", "bias")}
        return nn.Conv2d(channels, layer["channels"], layer["kernel"], **sizes)
    if kind == "max_pool":
        return nn.MaxPool2d(layer["kernel"], layer["stride"], layer["padding"])
    if kind == "global_average_pool":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return {"relu": nn.ReLU, "gelu": nn.GELU}[kind]() if kind != "batch_norm" else nn.BatchNorm2d(channels)


def layers_of(model):
    """Of a plan's or a job's model."""
    return transformer_layers(model["transformer"]) if "transformer" in model else [layer_of(one) for one in model["layers"]]
