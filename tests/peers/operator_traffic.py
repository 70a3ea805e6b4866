"""What PyTorch 2.13's own operators read, write and keep of a Llama block that nothing compiles, counted call by call, against
the numbers of docs/cost-model.md (`torchtitan-eager`), and what is kept against `pipewright estimate`. Exit status 77
(skipped) where PyTorch is missing.

usage: operator_traffic.py PIPEWRIGHT
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter

from planned import SKIPPED

HIDDEN, HEADS, FFN, SEQUENCE, SAMPLES = 256, 4, 704, 128, 2
# Of numbers: a norm's forward and backward; of a block's, with the widths of the model in front.
NORM_FORWARD, NORM_BACKWARD = 36, 92
BLOCK_FORWARD = (2 * (NORM_FORWARD + 6) + 2 * 20) * HIDDEN + 10 * FFN
BLOCK_BACKWARD = (2 * (NORM_BACKWARD + 6) + 18 + 2 * 20) * HIDDEN + 18 * FFN
KERNELS_FORWARD, KERNELS_BACKWARD = 34, 63
LOSS_KEPT, DIVIDED_LOSS_KEPT, LOSS_TRAFFIC = 12, 16, 40
# Operators that only look at the same numbers, or say that they are conjugates.
VIEWS = {"view", "_unsafe_view", "t", "transpose", "expand", "unsqueeze", "detach", "slice", "select", "reshape", "as_strided",
         "view_as_real", "view_as_complex", "_conj"}
PRODUCTS = {"mm", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"}


def counted(torch, run):
    """What `run` gives, the bytes that each operator reads and writes, how often each is called."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    traffic, calls = Counter(), Counter()

    def size(tensor):
        numbers = 1
        for length, stride in zip(tensor.shape, tensor.stride()):
            numbers *= length if stride else 1
        return numbers * tensor.element_size()

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            name = function._overloadpacket.__name__
            if name not in VIEWS:
                tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
                traffic[name] += sum(map(size, tensors))
                calls[name] += 1
            return result

    with Counting():
        result = run()
    return result, traffic, calls


def block_of(torch):
    """As a trainer writes it: root mean squares and rotary positions in 32 bits, a product for each of queries, keys, values."""
    functional = torch.nn.functional

    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(HIDDEN, dtype=torch.bfloat16))

        def forward(self, x):
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda inner, outer: torch.nn.Linear(inner, outer, bias=False, dtype=torch.bfloat16)
            self.norms = torch.nn.ModuleList([Norm(), Norm()])
            self.queries, self.keys, self.values, self.mixed = (linear(HIDDEN, HIDDEN) for _ in range(4))
            self.gate, self.up, self.down = linear(HIDDEN, FFN), linear(HIDDEN, FFN), linear(FFN, HIDDEN)
            turns = torch.randn(SEQUENCE, 1, HIDDEN // HEADS // 2)
            self.turns = torch.polar(torch.ones_like(turns), turns)

        def turned(self, x):
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * self.turns).flatten(3).type_as(x)

        def forward(self, x):
            inner = self.norms[0](x)
            queries, keys, values = (each(inner).view(*x.shape[:2], HEADS, -1)
                                     for each in (self.queries, self.keys, self.values))
            heads = [part.transpose(1, 2) for part in (self.turned(queries), self.turned(keys), values)]
            mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.mixed(mixed.transpose(1, 2).contiguous().view(x.shape))
            inner = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))

    return Norm(), Block()


def numbers(torch):
    return torch.randn(SAMPLES, SEQUENCE, HIDDEN, dtype=torch.bfloat16, requires_grad=True)


def near(what, found, expected, tolerance):
    assert abs(found / expected - 1) <= tolerance, f"{what}: {found}, expected {expected}"
    print(f"{what}: {found:.6g}, of {expected:.6g}")


def check_traffic(torch):
    norm, block = block_of(torch)
    rows = SAMPLES * SEQUENCE
    for what, module, of, forward, backward in (("norm", norm, rows * HIDDEN, NORM_FORWARD, NORM_BACKWARD),
                                                ("block", block, rows, BLOCK_FORWARD, BLOCK_BACKWARD)):
        x = numbers(torch)
        y, there, calls = counted(torch, lambda: module(x))
        gradient = torch.ones_like(y)
        _, back, calls_back = counted(torch, lambda: y.backward(gradient))
        for direction, traffic, expected in (("forward", there, forward), ("backward", back, backward)):
            found = sum(bytes_ for name, bytes_ in traffic.items() if name not in PRODUCTS) / of
            near(f"{what}, {direction}, bytes", found, expected, 0.02)
        if what == "block":
            assert (calls.total(), calls_back.total()) == (KERNELS_FORWARD, KERNELS_BACKWARD), (calls, calls_back)


def most_held(torch, run):
    """Bytes that live at once and were not there before."""
    with torch.profiler.profile(profile_memory=True) as profiler:
        run()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def check_loss(torch):
    """Beside the logits' own 16 bits, which a trainer drops before its backward; and where eight ranks divide the vocabulary."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import loss_parallel
    from torch.testing._internal.distributed.fake_pg import FakeStore

    rows, vocabulary = 256, 2000
    logits = torch.randn(rows, vocabulary, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, vocabulary, (rows,))
    loss_of = lambda numbers: torch.nn.functional.cross_entropy(numbers.float(), labels)
    loss, there, _ = counted(torch, lambda: loss_of(logits))
    _, back, _ = counted(torch, loss.backward)
    # The gradient of the chosen logarithms is given all of them, and reads none.
    near("loss, bytes", (there.total() + back.total()) / logits.numel() - 4, LOSS_TRAFFIC, 0.01)
    near("loss, most bytes", most_held(torch, lambda: loss_of(logits).backward()) / logits.numel(), LOSS_KEPT, 0.01)

    torch.distributed.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (8,))

    def divided():
        with loss_parallel():
            loss_of(DTensor.from_local(logits, mesh, [Shard(1)], run_check=False)).backward()

    divided()
    near("divided loss, most bytes", most_held(torch, divided) / logits.numel(), DIVIDED_LOSS_KEPT, 0.01)


def peak(pipewright, folder, layers, samples):
    model = {"schema": "pipewright.architecture/1", "name": "block", "hidden": HIDDEN, "layers": layers, "heads": HEADS, "ffn": FFN,
             "sequence": SEQUENCE, "vocabulary": 512, "gated": True, "biases": False, "learned_positions": False, "tied_head": False}
    path = os.path.join(folder, "model.json")
    with open(path, "w") as file:
        json.dump(model, file)
    words = ["--tp", 1, "--pp", 1, "--global-batch", 8 * samples, "--micro-batch-size", samples, "--framework", "torchtitan-eager",
             "--recompute", "none", "--zero", 0, "--json"]
    said = subprocess.run([pipewright, "estimate", path, *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)["best"]["peak_bytes"]


def check_kept(torch, pipewright):
    _, block = block_of(torch)
    others = {parameter.untyped_storage().data_ptr() for parameter in [*block.parameters(), block.turns]}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in others:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(numbers(torch))
    with tempfile.TemporaryDirectory() as folder:
        of = {(layers, samples): peak(pipewright, folder, layers, samples) for layers in (3, 4) for samples in (2, 4)}
    estimated = (of[4, 4] - of[3, 4]) - (of[4, 2] - of[3, 2])
    roots = 2 * 4 * SAMPLES * SEQUENCE  # a number a token and norm, which the estimate leaves out
    near("kept, bytes", sum(kept.values()) - roots, estimated * SAMPLES / 2, 1e-9)


def check_recompute(torch):
    from torch.utils.checkpoint import checkpoint

    _, block = block_of(torch)
    x = numbers(torch)
    y = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    _, _, calls = counted(torch, lambda: y.backward(torch.ones_like(y)))
    assert calls["mm"] == 2 * 7 + 6, f"{calls['mm']} products: the last one of seven is computed again"
    print("recompute: six of seven products")


def main():
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed")
        return SKIPPED
    torch.set_num_threads(1)
    check_traffic(torch)
    check_loss(torch)
    check_kept(torch, sys.argv[1])
    check_recompute(torch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
