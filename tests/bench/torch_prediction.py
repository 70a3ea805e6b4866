"""How far the steps that are predicted from measure() alone (medians of drawn steps, and the plan's own) are from those of
PyTorch's runtime, on two gloo processes, and whether they are in the right order. The cases are fixed here, before anything
is measured. Each process is bound to a core of its own, unless --unbound is given.

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 build/peers/torch/bin/python tests/bench/torch_prediction.py
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

import pipewright
import pipewright.torch

WIDTH, HEADS, BLOCKS, LENGTH, WORDS, SAMPLES = 128, 4, 8, 64, 256, 2
LAYERS = BLOCKS + 4  # words, places, blocks, norm, head
WARM_UP = 2  # steps of each round
LEFT = [(0, 4), (4, LAYERS)]  # two uneven stages


def even(stages):
    ends = [LAYERS * stage // stages for stage in range(stages + 1)]
    return list(zip(ends, ends[1:]))


def cases():
    """Name, ranks, order, layers by stage: 24."""
    found = []
    for m in (4, 8):
        found.append(("gpipe", 1, pipewright.schedule("gpipe", pp=1, micro_batches=m), even(1)))
        for name, (cut_name, cut) in itertools.product(("gpipe", "1f1b", "zb-h1"), (("even", even(2)), ("left", LEFT))):
            found.append((f"{name} {cut_name}", 2, pipewright.schedule(name, pp=2, micro_batches=m), cut))
        for name in ("interleaved", "looped-bfs", "interleaved-zb", "zbv", "hanayo"):
            order = pipewright.schedule(name, pp=2, micro_batches=m, vpp=2)
            found.append((name, 2, order, even(order.stages)))
    return [(f"{name} p={ranks} m={order.micro_batches}", ranks, order, cut) for name, ranks, order, cut in found]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_fn(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def batch(samples):
    torch.manual_seed(samples)
    return torch.randint(WORDS, (samples, LENGTH)), torch.randint(WORDS, (samples, LENGTH))


class Run:
    """A case on this rank."""

    def __init__(self, captured, order, cut, group):
        rank = torch.distributed.get_rank(group)
        self.group, self.order, self.own = group, order, order.stages_of(rank)
        stages = []
        for index in self.own:
            first, end = cut[index]
            module = nn.Sequential(*[layer for _, layer in captured.layers[first:end]])
            stages.append(
                torch.distributed.pipelining.PipelineStage(module, index, len(cut), torch.device("cpu"), group=group)
            )
        self.pipeline = pipewright.torch.schedule(order, stages, loss_fn)
        self.tokens, self.targets = batch(SAMPLES * order.micro_batches)

    def step(self):
        """When it began and ended."""
        is_last = self.order.stages - 1 in self.own
        inputs = (self.tokens,) if 0 in self.own else ()
        torch.distributed.barrier(self.group)
        began = time.perf_counter_ns()
        self.pipeline.step(*inputs, target=self.targets if is_last else None, losses=[])
        return began, time.perf_counter_ns()


def drawn_step_ns(command, folder, plan, profile):
    """The median of steps whose durations are drawn from the measurements."""
    plan.save(f"{folder}/plan.json")
    with open(f"{folder}/profile.json", "w") as file:
        json.dump(profile, file)
    found = subprocess.run(
        [command, "simulate", f"{folder}/plan.json", "--profile", f"{folder}/profile.json", "--samples", "200", "--json"],
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return json.loads(found.stdout)["drawn_steps"]["quantiles_ns"][3]


def profiles_of(captured, rank, alone, repeats):
    """By ranks that compute at once; on rank 0 the one by itself, too."""
    found = {2: pipewright.torch.measure(captured, [batch(SAMPLES)], loss_fn, repeats=repeats)}
    if rank == 0:
        found[1] = pipewright.torch.measure(captured, [batch(SAMPLES)], loss_fn, repeats=repeats, group=alone)
    torch.distributed.barrier()
    return found


def measured(rank, folder, asked):
    """By case: what is predicted in each round, and the steps of all rounds. A machine's speed changes within minutes, so
    costs and steps are measured by turns."""
    dist = torch.distributed
    torch.manual_seed(1)
    model = Gpt()
    captured = pipewright.torch.capture(model, batch(SAMPLES)[0], name="gpt")
    assert len(captured.layers) == LAYERS, captured.remarks
    alone = dist.new_group([0])
    runs = [
        Run(captured, order, cut, alone if ranks == 1 else dist.group.WORLD) if rank < ranks else None
        for _, ranks, order, cut in cases()
    ]
    predicted, times, profiles = [[] for _ in runs], [[] for _ in runs], []
    for _ in range(asked.rounds):
        profiles.append(profiles_of(captured, rank, alone, asked.repeats))
        if rank == 0:
            for (_, ranks, order, cut), found in zip(cases(), predicted):
                profile = profiles[-1][ranks]
                plan = pipewright.plan_of_order(order, captured.model, profile, cut, SAMPLES)
                found.append((drawn_step_ns(asked.command, folder, plan, profile), plan.predicted_step_ns))
        for repeat in range(asked.repeats + WARM_UP):
            for run, found in zip(runs, times):
                dist.barrier()
                span = run.step() if run is not None else None
                model.zero_grad()
                if repeat >= WARM_UP:
                    found.append(span)
    return predicted, times, profiles


def work(rank, folder, asked):
    if not asked.unbound:
        pipewright.torch.bind(rank, 2)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    result = measured(rank, folder, asked)
    torch.save(result, f"{folder}/result{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def kendall(rows):
    """Over pairs whose medians differ by more than both spreads; and how many of all pairs these are."""
    concordant = counted = 0
    pairs = list(itertools.combinations(rows, 2))
    for a, b in pairs:
        difference = a["measured_ms"] - b["measured_ms"]
        if abs(difference) <= max(a["spread_ms"], b["spread_ms"]):
            continue
        counted += 1
        concordant += 1 if (a["predicted_ms"] - b["predicted_ms"]) * difference > 0 else -1
    return (concordant / counted if counted else float("nan")), counted, len(pairs)


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--repeats", type=int, default=7, help="in each round")
    words.add_argument("--command", default="build/release/pipewright")
    words.add_argument("--unbound", action="store_true")
    words.add_argument("--json")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (folder, asked), nprocs=2)
        (predicted, first, profiles), (_, second, _) = (
            torch.load(os.path.join(folder, f"result{rank}"), weights_only=False) for rank in range(2)
        )
    rows = []
    for (name, _, _, _), found, mine, other in zip(cases(), predicted, first, second):
        steps = []
        for a, b in zip(mine, other):
            spans = [span for span in (a, b) if span is not None]
            steps.append((max(end for _, end in spans) - min(begin for begin, _ in spans)) / 1e6)
        drawn, planned = (statistics.median(numbers) for numbers in zip(*found))
        quarters = statistics.quantiles(steps, n=4)
        row = {"case": name, "predicted_ms": drawn / 1e6, "planned_ms": planned / 1e6, "measured_ms": statistics.median(steps)}
        row["spread_ms"] = quarters[2] - quarters[0]
        row["error_percent"] = 100 * (row["predicted_ms"] / row["measured_ms"] - 1)
        rows.append(row)
        print(
            f"{name:28} predicted {row['predicted_ms']:8.2f} ms  measured {row['measured_ms']:8.2f} ms "
            f"(quarters apart {row['spread_ms']:6.2f})  {row['error_percent']:+6.1f} %  plan {row['planned_ms']:8.2f} ms"
        )
    mean = statistics.mean(abs(row["error_percent"]) for row in rows)
    tau, counted, pairs = kendall(rows)
    print(f"mean error {mean:.1f} %, Kendall tau {tau:.3f} over {counted} of {pairs} pairs; {asked.rounds} x {asked.repeats} runs each")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"rows": rows, "mean_error_percent": mean, "tau": tau, "profiles": profiles}, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
