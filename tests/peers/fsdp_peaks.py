"""Peaks of a rank under FSDP2 as PyTorch 2.13's own tracker (torch.distributed._tools.fsdp2_mem_tracker) counts them, on
tensors without numbers, against `pipewright estimate`: Llama models that nothing compiles, the last block kept gathered, as
torchtitan does. Exit status 77 (skipped) where PyTorch is missing.

usage: fsdp_peaks.py PIPEWRIGHT
"""

import json
import os
import subprocess
import sys
import tempfile

from planned import SKIPPED

RANKS = 64
STATE = 2 + 4 + 12  # bytes of a weight on all ranks: itself, its gradient, in 32 bits with both moments
TOLERANCE = 0.02
# Hidden, heads, heads of keys, feed-forward, layers, vocabulary, sequence, samples. The loss is the fullest moment, but for
# small vocabularies under whole recompute, where a block's backward is.
SHAPES = ((5120, 40, 40, 13824, 8, 32000, 4096, 2), (4096, 32, 8, 14336, 6, 128256, 8192, 1),
          (8192, 64, 8, 28672, 4, 128256, 8192, 1), (8192, 64, 8, 28672, 4, 32000, 4096, 2))


def llama(torch, shape, recompute):
    hidden, heads, key_heads, ffn, layers, vocabulary, sequence, _ = shape
    functional, wide = torch.nn.functional, hidden // heads

    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(hidden))

        def forward(self, x):
            numbers = x.float()
            return (numbers * torch.rsqrt(numbers.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda inner, outer: torch.nn.Linear(inner, outer, bias=False)
            self.norms = torch.nn.ModuleList([Norm(), Norm()])
            self.queries, self.mixed = linear(hidden, hidden), linear(hidden, hidden)
            self.keys, self.values = (linear(hidden, key_heads * wide) for _ in range(2))
            self.gate, self.up, self.down = linear(hidden, ffn), linear(hidden, ffn), linear(ffn, hidden)

        def forward(self, x, turns):
            inner = self.norms[0](x)
            turned = lambda part: torch.view_as_real(
                torch.view_as_complex(part.float().reshape(*part.shape[:-1], -1, 2)) * turns).flatten(3).type_as(part)
            queries, keys, values = (each(inner).view(*x.shape[:2], -1, wide)
                                     for each in (self.queries, self.keys, self.values))
            parts = (part.transpose(1, 2) for part in (turned(queries), turned(keys), values))
            mixed = functional.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=key_heads < heads)
            x = x + self.mixed(mixed.transpose(1, 2).reshape(x.shape))
            inner = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))

    class Llama(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.norm = torch.nn.Embedding(vocabulary, hidden), Norm()
            self.blocks = torch.nn.ModuleList(Block() for _ in range(layers))
            self.head = torch.nn.Linear(hidden, vocabulary, bias=False)
            self.register_buffer("turns", torch.zeros(sequence, 1, wide // 2, dtype=torch.complex64))

        def forward(self, tokens):
            x = self.table(tokens)
            for block in self.blocks:
                if recompute == "full":
                    x = torch.utils.checkpoint.checkpoint(block, x, self.turns, use_reentrant=False)
                else:
                    x = block(x, self.turns)
            return self.head(self.norm(x))

    return Llama()


def tracked(torch, mesh, shape, recompute):
    """Bytes beside what stays: of the fullest moment, without what is arriving; of a block's weights and the tables'."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def most(tracker):
        (parts,) = tracker.get_tracker_snapshot("peak").values()
        parts = {getattr(key, "name", key): value for key, value in parts.items()}
        stays = ("SHARDED_PARAM", "SHARDED_GRAD")
        return sum(value for key, value in parts.items() if key not in (*stays, "ALL_GATHER", "Total"))

    with FakeTensorMode(allow_non_fake_inputs=True):
        model = llama(torch, shape, recompute)
        numbers = sum(each.numel() for each in model.parameters())
        of_block, of_table = sum(each.numel() for each in model.blocks[0].parameters()), model.head.weight.numel()
        how = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
        for block in model.blocks:
            fully_shard(block, reshard_after_forward=block is not model.blocks[-1], **how)
        fully_shard(model, **how)
        tokens = torch.randint(shape[5], (shape[7], shape[6]))
        tracker, at_loss = FSDPMemTracker(model), []
        model.blocks[-1].register_full_backward_pre_hook(lambda *_: at_loss.append(most(tracker)))
        tracker.track_inputs((tokens,))
        with tracker:
            logits = model(tokens)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
            del logits
            loss.backward()
        return max(at_loss[0], most(tracker)), numbers, of_block, of_table


def estimated(pipewright, folder, shape, recompute):
    hidden, heads, key_heads, ffn, layers, vocabulary, sequence, samples = shape
    path = os.path.join(folder, "model.json")
    with open(path, "w") as file:
        json.dump({"schema": "pipewright.architecture/1", "name": "llama", "hidden": hidden, "layers": layers, "heads": heads,
                   "kv_heads": key_heads, "ffn": ffn, "sequence": sequence, "vocabulary": vocabulary, "gated": True,
                   "biases": False, "learned_positions": False, "tied_head": False}, file)
    words = ["--cluster", "dgx-a100", "--devices", RANKS, "--framework", "torchtitan-eager", "--tp", 1, "--pp", 1, "--zero", 3,
             "--micro-batch-size", samples, "--global-batch", RANKS * samples, "--recompute", recompute, "--json"]
    said = subprocess.run([pipewright, "estimate", path, *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)["best"]["peak_bytes"]


def main():
    try:
        import torch
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError:
        print("PyTorch is not installed")
        return SKIPPED
    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            for recompute in ("none", "full"):
                peak, numbers, of_block, of_table = tracked(torch, mesh, shape, recompute)
                # Weights arrive on a stream of their own, whose memory the allocator gives to no other.
                counted = peak + max(4 * of_block, 4 * of_table) + STATE * numbers / RANKS
                found = estimated(sys.argv[1], folder, shape, recompute)
                print(f"{shape}, {recompute}: {counted / 2**30:.2f} GiB by PyTorch, {found / 2**30:.2f} estimated, "
                      f"{100 * (found / counted - 1):+.1f} %", flush=True)
                assert abs(found / counted - 1) < TOLERANCE
    return 0


if __name__ == "__main__":
    sys.exit(main())
