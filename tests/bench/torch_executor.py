"""A step of our executor beside one of PyTorch's runtime: the same model, plan, order, numbers of 32 bits and update (SGD),
two processes with a core and a BLAS thread each on both sides, over sockets on both sides, by turns.

    PYTHONPATH=build/release/python build/peers/torch/bin/python tests/bench/torch_executor.py

Of each model medians over the steps of all rounds: the whole step, and what the ranks computed of it on average.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy
import torch

import pipewright
import pipewright.torch
from pipewright.torch.recording import Watch, watching
from torch_models import layers_of

RANKS, MICRO_BATCHES, WARM_UP, LEARNING_RATE = 2, 8, 3, 1e-3


def transformer(hidden, layers, heads, sequence, vocabulary=256, **more):
    return {"transformer": {"hidden": hidden, "layers": layers, "heads": heads, "sequence": sequence, "vocabulary": vocabulary, **more}}


def mlp(width, depth):
    layers = []
    for number in range(depth):
        inner = [{"kind": "linear", "in": width, "out": width}, {"kind": "relu"}]
        layers.append({"name": f"layer {number}", "kind": "sequential", "layers": inner})
    return {"layers": layers, "loss": "mse", "sequence": 1}


# Name, model, samples of a micro-batch, schedule.
MODELS = [
    ("gpt 128 x 8", transformer(128, 8, 4, 64), 2, "1f1b"),
    ("gpt 256 x 4, long", transformer(256, 4, 8, 256), 1, "gpipe"),
    ("gpt, large head", transformer(128, 6, 4, 64, vocabulary=4096), 2, "zb-h1"),
    ("llama 128 x 8", transformer(128, 8, 4, 64, style="llama", kv_heads=2, ffn=352), 2, "interleaved"),
    ("llama 256 x 4", transformer(256, 4, 8, 64, style="llama", kv_heads=8, ffn=704), 2, "zbv"),
    ("mixtral 96 x 4", transformer(96, 4, 4, 64, style="llama", kv_heads=2, ffn=168, experts=8, top_k=2), 2, "1f1b"),
    ("mlp 512 x 8", mlp(512, 8), 64, "looped-bfs"),
    ("resnet-tiny", {"preset": "resnet-tiny"}, 4, "1f1b"),
]


def write_plan(command, folder, model, samples, schedule):
    """Of the model with data of its own; the plan as it is in the file."""
    draw = numpy.random.default_rng(22)
    count = samples * MICRO_BATCHES
    data = {}
    if "transformer" in model:
        shape = model["transformer"]
        tokens = draw.integers(0, shape["vocabulary"], (count, shape["sequence"] + 1))
        numpy.save(f"{folder}/x.npy", tokens[:, :-1])
        numpy.save(f"{folder}/y.npy", tokens[:, 1:])
        data = {"data": {"inputs": f"{folder}/x.npy", "labels": f"{folder}/y.npy"}}
    job = {
        "schema": "pipewright.job/1",
        "model": model,
        "cluster": {"preset": "local-cpu", "devices": RANKS},
        "global_batch": count,
        "strategy": {"pp_degree": RANKS, "micro_batch_size": samples, "schedule_mode": schedule},
        "training": {"optimizer": "sgd", "learning_rate": LEARNING_RATE, **data},
    }
    with open(f"{folder}/job.json", "w") as file:
        json.dump(job, file)
    subprocess.run([command, "tune", "job.json", "-q", "-o", "plan.json"], cwd=folder, check=True, stdout=subprocess.PIPE)
    with open(f"{folder}/plan.json") as file:
        return json.load(file)


def ours(command, folder, steps):
    """Steps in ns, and how much of one the ranks compute."""
    processes = []
    with tempfile.TemporaryDirectory() as meeting:
        for rank in range(RANKS):
            numbers = {"PIPEWRIGHT_RENDEZVOUS": f"file://{meeting}", "PIPEWRIGHT_RANK": str(rank), "PIPEWRIGHT_WORLD_SIZE": str(RANKS)}
            words = [command, "run", f"{folder}/plan.json", "--transport", "tcp", "--steps", str(steps + WARM_UP), "--json", "-q"]
            processes.append(
                subprocess.Popen(
                    words, env={**os.environ, **numbers}, stdout=subprocess.PIPE,
                    preexec_fn=lambda rank=rank: os.sched_setaffinity(0, {rank}),
                )  # fmt: skip
            )
        said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"run ended with {[process.returncode for process in processes]}")
    found = json.loads(said[0])
    return [step["step_ns"] for step in found["steps"]][WARM_UP:], 1 - found["bubble_ratio"]


def leaves(layers):
    for layer in layers:
        yield from leaves(layer["layers"]) if "layers" in layer else [layer]


def data_of(model, count):
    torch.manual_seed(22)
    if "transformer" in model:
        shape = model["transformer"]
        size = (count, shape["sequence"])
        return torch.randint(shape["vocabulary"], size), torch.randint(shape["vocabulary"], size)
    layers = list(leaves(model["layers"]))
    if "image" in layers[0]:
        return torch.randn(count, *layers[0]["image"]), torch.randint(layers[-1]["out"], (count,))
    return torch.randn(count, layers[0]["in"]), torch.randn(count, layers[0]["in"])


def loss_of(model):
    if model.get("loss") == "mse":
        return torch.nn.functional.mse_loss
    return lambda output, target: torch.nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def train(rank, folder, steps):
    pipewright.torch.bind(rank, RANKS)
    torch.set_num_threads(1)
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    with open(f"{folder}/plan.json") as file:
        model = json.load(file)["model"]
    plan = pipewright.Plan.load(f"{folder}/plan.json")
    torch.manual_seed(1)
    stages = pipewright.torch.split(layers_of(model), plan)
    pipeline = pipewright.torch.schedule(plan, stages, loss_of(model))
    optimizer = torch.optim.SGD([one for stage in stages for one in stage.submod.parameters()], lr=LEARNING_RATE)
    inputs, targets = data_of(model, plan.micro_batches * plan.micro_batch_size)
    own = {stage.stage_index for stage in stages}
    actions = [str(one) for one in pipeline.pipeline_order_with_comms[rank] if one is not None]
    found, computing = [], []
    for step in range(steps + WARM_UP):
        watch = Watch()
        dist.barrier()
        with watching(watch):
            began = time.perf_counter_ns()
            pipeline.step(
                *((inputs,) if 0 in own else ()), target=targets if plan.order.stages - 1 in own else None, losses=[]
            )
        optimizer.step()
        optimizer.zero_grad()
        ended = time.perf_counter_ns()
        if step >= WARM_UP:
            found.append((began, ended))
            computing.append(
                sum(
                    end - begin - waited
                    for action, (begin, end, waited) in zip(actions, watch.spans)
                    if not any(word in action for word in ("SEND", "RECV"))
                )
            )
    torch.save((found, computing), f"{folder}/found{rank}")
    dist.barrier()
    dist.destroy_process_group()


def theirs(folder, steps):
    """The same of PyTorch's."""
    if os.path.exists(f"{folder}/meeting"):
        os.remove(f"{folder}/meeting")
    torch.multiprocessing.spawn(train, (folder, steps), nprocs=RANKS)
    by_rank = [torch.load(f"{folder}/found{rank}") for rank in range(RANKS)]
    spans = list(zip(*(found for found, _ in by_rank)))
    whole = [max(end for _, end in ranks) - min(begin for begin, _ in ranks) for ranks in spans]
    share = [statistics.mean(ranks) / step for ranks, step in zip(zip(*(computing for _, computing in by_rank)), whole)]
    return whole, statistics.mean(share)


def compare(command, case, rounds, steps):
    name, model, samples, schedule = case
    with tempfile.TemporaryDirectory() as folder:
        write_plan(command, folder, model, samples, schedule)
        mine, yours = [], []
        for _ in range(rounds):
            mine.append(ours(command, folder, steps))
            yours.append(theirs(folder, steps))

    def middle(found):
        step = statistics.median(ns for steps, _ in found for ns in steps) / 1e6
        return step, step * statistics.mean(share for _, share in found)

    (our_step, our_work), (their_step, their_work) = middle(mine), middle(yours)
    print(
        f"{name:18} {schedule:12} {our_step:8.2f} ms  {their_step:8.2f} ms  {our_step / their_step:5.2f}   "
        f"{our_work:8.2f}  {their_work:8.2f}   {our_step - our_work:8.2f}  {their_step - their_work:8.2f}",
        flush=True,
    )
    return our_step / their_step


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--steps", type=int, default=15)
    words.add_argument("--command", default="build/release/pipewright")
    asked = words.parse_args()
    print(f"{'model':18} {'schedule':12}        ours    PyTorch's  ours /   computed: ours, PyTorch's   else: ours, PyTorch's")
    ratios = [compare(os.path.abspath(asked.command), case, asked.rounds, asked.steps) for case in MODELS]
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    print(f"geometric mean {mean:.2f}, largest {max(ratios):.2f}; {asked.rounds} rounds of {asked.steps} steps each")


if __name__ == "__main__":
    sys.exit(main())
