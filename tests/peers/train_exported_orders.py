"""Orders exported by `pipewright schedules export --comms`, loaded and trained by PyTorch itself.

Each is read by _PipelineScheduleRuntime._load_csv(file, format="compute_comms") in as many gloo
processes as it has ranks; every gradient is compared with that of the same model without a pipeline.
By default a small sample; PIPEWRIGHT_TORCH_ALL=1 takes every schedule, p 2 and 4, several m and v.
Exit status 77 (skipped) where torch 2.13 is missing.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

SKIPPED = 77
WIDTH = 8  # of each layer
SAMPLES = 2  # of a micro-batch
MOST_DIFFERENCE = 1e-5  # relative to the largest gradient, in float32


def cases_of(command, all_of_them):
    """(schedule, p, m, v) that the command makes and PyTorch's runtime can run."""
    listed = json.loads(subprocess.check_output([command, "schedules", "list", "--json"]))
    cases = []
    for schedule in listed["schedules"]:
        if schedule["asynchronous"] or schedule["placement"] in ("bidirectional", "replicas"):
            continue
        chunks = sorted({schedule["default_vpp"], 1, 2, 4})
        found = [(schedule["name"], p, m, v) for p in (2, 4) for v in chunks for m in (4, 8, 12)]
        cases += [case for case in found if export(command, case)]
    if all_of_them:
        return cases
    return sample_of(cases)


def sample_of(cases):
    """One of each schedule's cases with two ranks, of every third schedule; the same each time."""
    draw = random.Random(16)
    names = sorted({case[0] for case in cases if case[1] == 2})
    return [draw.choice([c for c in cases if c[0] == name and c[1] == 2]) for name in names[::3]]


def export(command, case):
    name, p, m, v = case
    words = [command, "schedules", "export", name, "-p", p, "-m", m, "-v", v, "--comms", "-q"]
    made = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return made.stdout if made.returncode == 0 else None


def stages_of(row):
    return sorted({int(action.lstrip("(").split("F")[0]) for action in row if is_forward(action)})


def is_forward(action):
    return action.lstrip("(").split(";")[0].lstrip("0123456789").startswith("F")


def stages_in(rows):
    return 1 + max(stage for row in rows for stage in stages_of(row))


def layer_of(torch, stage):
    torch.manual_seed(100 + stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())


def data_of(torch, micro_batches):
    torch.manual_seed(7)
    size = (micro_batches * SAMPLES, WIDTH)
    return torch.randn(*size), torch.randn(*size)


def loss_of(torch):
    return lambda output, target: torch.nn.functional.mse_loss(output, target)


def unpipelined(torch, stages, micro_batches):
    layers = [layer_of(torch, stage) for stage in range(stages)]
    inputs, targets = data_of(torch, micro_batches)
    loss_of(torch)(torch.nn.Sequential(*layers)(inputs), targets).backward()
    return [[p.grad for p in layer.parameters()] for layer in layers]


def difference(own, wanted):
    """Of one rank's stages: the largest difference over the largest gradient."""
    largest = max(g.abs().max().item() for layer in wanted for g in layer)
    off = max(
        (g - w).abs().max().item() if g is not None else float("inf")
        for stage, layer in own.items()
        for g, w in zip(layer, wanted[stage])
    )
    return off / largest


def train(torch, rank, text):
    """One step of the order on this rank; how far its gradients are from the unpipelined ones."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    rows = [line.split(",") for line in text.splitlines()]
    number = stages_in(rows)
    micro_batches = sum(1 for a in rows[0] if is_forward(a)) // len(stages_of(rows[0]))
    own = {stage: layer_of(torch, stage) for stage in stages_of(rows[rank])}
    stages = [PipelineStage(own[s], s, number, torch.device("cpu")) for s in own]
    runtime = _PipelineScheduleRuntime(stages, micro_batches, loss_fn=loss_of(torch))
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(text)
        file.flush()
        runtime._load_csv(file.name, format="compute_comms")
    inputs, targets = data_of(torch, micro_batches)
    arguments = (inputs,) if 0 in own else ()
    runtime.step(*arguments, target=targets if number - 1 in own else None, losses=[])
    gradients = {s: [p.grad for p in layer.parameters()] for s, layer in own.items()}
    return difference(gradients, unpipelined(torch, number, micro_batches))


def worker(rank, ranks, meeting, orders, results):
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + meeting, rank=rank, world_size=ranks
    )
    for case, text in orders:
        found = torch.tensor([train(torch, rank, text)])
        torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
        if rank == 0:
            results.put((case, found.item()))
    torch.distributed.destroy_process_group()


def run_all(torch, orders, ranks):
    spawn = torch.multiprocessing.get_context("spawn")
    results = spawn.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, folder + "/meeting", orders, results)
        started = torch.multiprocessing.spawn(worker, arguments, nprocs=ranks, join=False)
        for _ in orders:
            while results.empty() and not started.join(timeout=0.1):
                pass
            yield results.get()
        while not started.join():
            pass


def main():
    command = sys.argv[1]
    try:
        import torch
        import torch.distributed.pipelining
    except ImportError as error:
        print(f"skipped: PyTorch 2.13 is not installed here ({error})")
        return SKIPPED
    if not torch.__version__.startswith("2.13."):
        print(f"skipped: PyTorch is {torch.__version__}, not 2.13")
        return SKIPPED
    cases = cases_of(command, os.environ.get("PIPEWRIGHT_TORCH_ALL") == "1")
    failed = 0
    for ranks in sorted({case[1] for case in cases}):
        orders = [(case, export(command, case)) for case in cases if case[1] == ranks]
        for (name, p, m, v), off in run_all(torch, orders, ranks):
            right = off < MOST_DIFFERENCE
            failed += not right
            verdict = "ok" if right else "WRONG"
            print(f"{verdict}  {name} p={p} m={m} v={v}: gradients off by {off:.1e}", flush=True)
    names = len({case[0] for case in cases})
    print(f"{len(cases) - failed} of {len(cases)} orders of {names} schedules train right")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
