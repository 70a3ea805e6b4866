"""What PyTorch 2.13's profiler writes of its schedules of one stage a rank (ScheduleGPipe, Schedule1F1B; gloo), which do
not name their actions: `analyze` finds the order that PyTorch says it runs, tells waiting from work, sets a wrong clock
right, and what it writes is simulated to what the trace took; the files of one of two replicas are read alone. Exit status 77 (skipped) where PyTorch is missing.

usage: torch_single_stage.py PIPEWRIGHT
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time

from planned import SKIPPED

MICRO_BATCHES, STEPS = 6, 2
NAP = 0.05  # seconds that the last stage sleeps in each forward
WIDTH, SAMPLES = 192, 48
LATE_NS = 11_000_000_000


def pipeline_of(kind, rank, ranks, replicas):
    """`ranks` of a pipeline; those of a stage, which are replicas, stand together."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    class Block(torch.nn.Module):
        def __init__(self, nap):
            super().__init__()
            self.norm, self.nap = torch.nn.LayerNorm(WIDTH), nap
            self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            time.sleep(self.nap)
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    mesh = init_device_mesh("cpu", (ranks, replicas), mesh_dim_names=("pp", "dp"))
    index = rank // replicas
    last = index == ranks - 1
    layers = torch.nn.Sequential(Block(NAP if last else 0), *(Block(0) for _ in range(8 // ranks - 1)))
    if replicas > 1:
        layers = torch.nn.parallel.DistributedDataParallel(layers, process_group=mesh.get_group("dp"))
    stage = PipelineStage(layers, index, ranks, torch.device("cpu"), group=mesh.get_group("pp"))
    made = ScheduleGPipe if kind == "gpipe" else Schedule1F1B
    return made(stage, MICRO_BATCHES, loss_fn=torch.nn.functional.mse_loss)


def listen(stage, method, letter, called):
    """Notes each call of a stage's method for a micro-batch. (What Schedule1F1B says of its last rank counts forwards from
    1, which it does not.)"""
    original = getattr(stage, method)

    def call(micro_batch, *words, **named):
        called.append(f"{stage.stage_index}{letter}{micro_batch}")
        return original(micro_batch, *words, **named)

    setattr(stage, method, call)


def work(rank, ranks, replicas, kind, folder):
    import torch
    from torch.distributed import destroy_process_group, init_process_group

    torch.set_num_threads(1)
    init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks * replicas)
    schedule = pipeline_of(kind, rank, ranks, replicas)
    called = []
    listen(schedule._stage, "forward_one_chunk", "F", called)
    listen(schedule._stage, "backward_one_chunk", "B", called)
    optimizer = torch.optim.AdamW(schedule._stage.submod.parameters())
    batch = torch.randn(SAMPLES * MICRO_BATCHES, WIDTH)

    def step():
        optimizer.zero_grad()
        if schedule._stage.is_first:
            schedule.step(batch)
        elif schedule._stage.is_last:
            schedule.step(target=batch, losses=[])
        else:
            schedule.step()
        optimizer.step()

    step()
    plan = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, schedule=plan) as profiler:
        for _ in range(1 + STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(os.path.join(folder, f"rank{rank}.json.gz"))
    with open(os.path.join(folder, f"called{rank}.json"), "w") as file:
        json.dump(called[-2 * MICRO_BATCHES :], file)
    destroy_process_group()


def run(command, words, folder):
    done = subprocess.run([command, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_late(path):
    """The clock of the machine that wrote the file."""
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    trace["baseTimeNanoseconds"] += LATE_NS
    with gzip.open(path, "wt") as file:
        json.dump(trace, file)


def recorded(kind, ranks, replicas, folder):
    import torch

    torch.multiprocessing.spawn(work, (ranks, replicas, kind, folder), nprocs=ranks * replicas)


def order_of(folder):
    with open(os.path.join(folder, "order.csv")) as file:
        return [[action for action in line.strip().split(",") if action] for line in file]


def called_by(folder, ranks):
    rows = []
    for rank in ranks:
        with open(os.path.join(folder, f"called{rank}.json")) as file:
            rows.append(json.load(file))
    return rows


def check_replica(command, folder):
    recorded("1f1b", 2, 2, folder)
    said = run(command, ["analyze", "rank3.json.gz", "rank1.json.gz", "-o", "order.csv"], folder)
    assert "traces of 2 of 4 ranks: one pipeline" in said, said
    found, wanted = order_of(folder), called_by(folder, (1, 3))
    assert found == wanted, (found, wanted)
    files = [os.path.join(folder, f"rank{rank}.json.gz") for rank in range(4)]
    both = subprocess.run([command, "analyze", *files], capture_output=True, text=True)
    assert both.returncode == 2 and "give the files of one pipeline" in both.stderr, both.stderr
    print("1f1b on 2 ranks, replica 1 of 2: the order")


def check(command, kind, ranks, folder):
    recorded(kind, ranks, 1, folder)
    files = [f"rank{rank}.json.gz" for rank in reversed(range(ranks))]
    words = ["analyze", *files, "--json", "-o", "order.csv", "--costs-out", "costs.csv"]
    trace = json.loads(run(command, words, folder))
    found, wanted = order_of(folder), called_by(folder, range(ranks))
    assert found == wanted, (kind, ranks, found, wanted)

    assert len(trace["steps"]) == STEPS, trace["steps"]
    assert trace["messages"]["matched"] == STEPS * 2 * (ranks - 1) * MICRO_BATCHES, trace["messages"]
    naps = MICRO_BATCHES * NAP * 1e9
    busy = [rank["busy_ns"] for rank in trace["ranks"]]
    waited = [rank["waited_ns"] for rank in trace["ranks"]]
    assert {rank["waiting_rule"] for rank in trace["ranks"]} == {"receives"}, trace["ranks"]
    assert busy[-1] >= naps > busy[0], (kind, ranks, busy)
    # The last gradient comes after all naps; on a busy machine less of that time is left to wait.
    for rank in range(ranks - 1):
        assert waited[rank] > 0 and waited[rank] + busy[rank] > naps / 2, (kind, ranks, waited, busy)

    latency = trace["costs"]["latency_ns"]
    words = ["simulate", "order.csv", "--json", "--costs", "costs.csv", "--cost", f"comm={latency}"]
    simulated = json.loads(run(command, words, folder))["makespan_ns"]
    error = simulated / trace["makespan_ns"] - 1
    assert abs(error) < 0.05, (kind, ranks, error)

    set_late(os.path.join(folder, "rank1.json.gz"))
    again = json.loads(run(command, ["analyze", *files, "--json"], folder))
    clock = next(clock for clock in again["clocks"] if clock["rank"] == 1)
    shift = clock["shift_ns"]
    assert clock["least_ns"] <= -LATE_NS <= clock["most_ns"], (kind, ranks, clock)
    assert abs(shift + LATE_NS) < max(1_000_000, clock["most_ns"] - clock["least_ns"]), (kind, ranks, clock)
    print(f"{kind} on {ranks} ranks: the order, {error:+.2%} simulated, clock set right by {shift} ns, busy {busy}")


def main():
    try:
        import torch
        import torch.distributed.pipelining  # noqa: F401
    except ImportError:
        print("skipped: this Python has no PyTorch")
        return SKIPPED
    if not torch.__version__.startswith("2.13"):
        print(f"skipped: PyTorch is {torch.__version__}, not 2.13")
        return SKIPPED
    os.environ["OMP_NUM_THREADS"] = "1"
    for kind in ("gpipe", "1f1b"):
        for ranks in (2, 4):
            with tempfile.TemporaryDirectory() as folder:
                check(os.path.abspath(sys.argv[1]), kind, ranks, folder)
    with tempfile.TemporaryDirectory() as folder:
        check_replica(os.path.abspath(sys.argv[1]), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
