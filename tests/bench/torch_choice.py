"""Whether the plan that tune chooses from measure() alone is as fast in PyTorch's runtime as PyTorch's own schedules with
layers dealt out evenly: Schedule1F1B, and ScheduleInterleaved1F1B with two stages a rank. Steps by turns on two gloo
processes, each bound to a core of its own.

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 build/peers/torch/bin/python tests/bench/torch_choice.py

The interval is that of the median ratio of 2,000 resamplings of the turns, 95 %.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

import pipewright
import pipewright.torch
from torch_models import transformer_layers

RANKS, SAMPLES, RESAMPLINGS = 2, 2, 2000

# Name, shape, micro-batches.
MODELS = [
    ("gpt 128 x 8", {"hidden": 128, "layers": 8, "heads": 4, "sequence": 64, "vocabulary": 256}, 8),
    ("gpt, large head", {"hidden": 128, "layers": 6, "heads": 4, "sequence": 64, "vocabulary": 4096}, 8),
    ("llama 128 x 10", {"style": "llama", "hidden": 128, "layers": 10, "heads": 4, "kv_heads": 2, "ffn": 352, "sequence": 64, "vocabulary": 1024}, 4),
]  # fmt: skip


def loss_fn(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def batch(shape, samples):
    torch.manual_seed(samples)
    size = (samples, shape["sequence"])
    return torch.randint(shape["vocabulary"], size), torch.randint(shape["vocabulary"], size)


def stages_of(layers, rank, stages):
    """Layers dealt out evenly in number, stage rank, rank + RANKS, ..."""
    ends = [len(layers) * stage // stages for stage in range(stages + 1)]
    device = torch.device("cpu")
    return [
        PipelineStage(nn.Sequential(*layers[ends[stage] : ends[stage + 1]]), stage, stages, device)
        for stage in range(rank, stages, RANKS)
    ]


def chosen_plan(captured, profile, micro_batches):
    """Of all synchronous schedules, cuts and numbers of stages a rank; micro-batches as they are."""
    job = {
        "schema": "pipewright.job/1",
        "model": captured.model,
        "cluster": profile["cluster"],
        "global_batch": SAMPLES * micro_batches,
        "strategy": {"pp_degree": RANKS, "dp_degree": 1, "micro_batch_size": SAMPLES, "comm_policy": "torch-gloo"},
    }
    return pipewright.tune(job, profile=profile).plan


def measured(rank, folder, number, repeats):
    """The plan, and by pipeline the spans of its steps."""
    dist = torch.distributed
    _, shape, micro_batches = MODELS[number]
    torch.manual_seed(1)
    model = nn.Sequential(*transformer_layers(shape))
    captured = pipewright.torch.capture(model, batch(shape, SAMPLES)[0], name="model")
    profile = pipewright.torch.measure(captured, [batch(shape, SAMPLES)], loss_fn, repeats=repeats)
    if rank == 0:
        chosen_plan(captured, profile, micro_batches).save(f"{folder}/plan.json")
    dist.barrier()
    plan = pipewright.Plan.load(f"{folder}/plan.json")
    layers = [layer for _, layer in captured.layers]
    pipelines = {
        "chosen": pipewright.torch.schedule(plan, pipewright.torch.split(captured, plan), loss_fn),
        "1F1B": Schedule1F1B(stages_of(layers, rank, RANKS)[0], micro_batches, loss_fn=loss_fn),
        "interleaved": ScheduleInterleaved1F1B(stages_of(layers, rank, 2 * RANKS), micro_batches, loss_fn=loss_fn),
    }
    takes_targets = {name: rank == RANKS - 1 for name in pipelines}
    takes_targets["chosen"] = plan.order.stages - 1 in plan.order.stages_of(rank)
    tokens, targets = batch(shape, SAMPLES * micro_batches)
    spans = {name: [] for name in pipelines}
    for repeat in range(repeats + 2):
        for name, pipeline in pipelines.items():
            dist.barrier()
            began = time.perf_counter_ns()
            pipeline.step(*((tokens,) if rank == 0 else ()), target=targets if takes_targets[name] else None, losses=[])
            ended = time.perf_counter_ns()
            model.zero_grad()
            if repeat >= 2:
                spans[name].append((began, ended))
    return plan.title, spans


def work(rank, folder, number, repeats):
    pipewright.torch.bind(rank, RANKS)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    torch.save(measured(rank, folder, number, repeats), f"{folder}/found{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def interval(ratios):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLINGS))
    return medians[RESAMPLINGS // 40], medians[-RESAMPLINGS // 40]


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--repeats", type=int, default=31)
    asked = words.parse_args()
    for number, (name, _, _) in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (folder, number, asked.repeats), nprocs=RANKS)
            by_rank = [torch.load(os.path.join(folder, f"found{rank}")) for rank in range(RANKS)]
        steps = {
            pipeline: [(max(e for _, e in turn) - min(b for b, _ in turn)) / 1e6 for turn in zip(*(s[pipeline] for _, s in by_rank))]
            for pipeline in by_rank[0][1]
        }  # fmt: skip
        print(f"{name}: {by_rank[0][0]}, {statistics.median(steps['chosen']):.2f} ms")
        for pipeline in ("1F1B", "interleaved"):
            ratios = [a / b for a, b in zip(steps["chosen"], steps[pipeline])]
            low, high = interval(ratios)
            print(
                f"  over PyTorch's {pipeline:12} {statistics.median(steps[pipeline]):8.2f} ms: "
                f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
