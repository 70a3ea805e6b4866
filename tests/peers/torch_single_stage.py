"""What PyTorch 2.13's profiler writes of its schedules of one stage a rank (ScheduleGPipe, Schedule1F1B; gloo), which do
not name their actions: `analyze` finds the order that PyTorch says it runs, tells waiting from work, sets a wrong clock
right, and what it writes is simulated to what the trace took; the files of one of two replicas are read alone. Exit
status 77 (skipped) where PyTorch is missing.

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


class Witness:
    """What a rank itself sees of its steps: the calls of its stage's methods, and how long it computed at least and at most.

    At least: the processor's time in those calls, because another process may have the core before the first operator,
    which the trace does not show. At most: the step without what it waited for messages. (What Schedule1F1B says of its
    last rank counts forwards from 1, which it does not.)
    """

    def __init__(self, stage):
        from torch.distributed.pipelining import schedules

        self.steps = []
        self.listen(stage, "forward_one_chunk", "F")
        self.listen(stage, "backward_one_chunk", "B")
        schedules._wait_batch_p2p = self.timed(schedules._wait_batch_p2p, "waits_ns", time.perf_counter_ns)

    def timed(self, original, total, clock):
        def call(*words, **named):
            began = clock()
            result = original(*words, **named)
            self.steps[-1][total] += clock() - began
            return result

        return call

    def listen(self, stage, method, letter):
        original = self.timed(getattr(stage, method), "least_ns", time.thread_time_ns)

        def call(micro_batch, *words, **named):
            self.steps[-1]["called"].append(f"{stage.stage_index}{letter}{micro_batch}")
            return original(micro_batch, *words, **named)

        setattr(stage, method, call)

    def watch(self, step):
        self.steps.append({"called": [], "least_ns": 0, "waits_ns": 0})
        began = time.perf_counter_ns()
        step()
        self.steps[-1]["most_ns"] = time.perf_counter_ns() - began - self.steps[-1]["waits_ns"]


def work(rank, ranks, replicas, kind, folder):
    import torch
    from torch.distributed import destroy_process_group, init_process_group

    torch.set_num_threads(1)
    init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks * replicas)
    schedule = pipeline_of(kind, rank, ranks, replicas)
    witness = Witness(schedule._stage)
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

    witness.watch(step)
    plan = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, schedule=plan) as profiler:
        for _ in range(1 + STEPS):
            witness.watch(step)
            profiler.step()
    profiler.export_chrome_trace(os.path.join(folder, f"rank{rank}.json.gz"))
    with open(os.path.join(folder, f"steps{rank}.json"), "w") as file:
        json.dump(witness.steps[-STEPS:], file)
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


def seen_by(folder, ranks):
    """The steps of the ranks' witnesses."""
    steps = []
    for rank in ranks:
        with open(os.path.join(folder, f"steps{rank}.json")) as file:
            steps.append(json.load(file))
    return steps


def check_replica(command, folder):
    recorded("1f1b", 2, 2, folder)
    said = run(command, ["analyze", "rank3.json.gz", "rank1.json.gz", "-o", "order.csv"], folder)
    assert "traces of 2 of 4 ranks: one pipeline" in said, said
    found, wanted = order_of(folder), [steps[-1]["called"] for steps in seen_by(folder, (1, 3))]
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
    seen = seen_by(folder, range(ranks))
    found, wanted = order_of(folder), [steps[-1]["called"] for steps in seen]
    assert found == wanted, (kind, ranks, found, wanted)

    assert len(trace["steps"]) == STEPS, trace["steps"]
    assert trace["messages"]["matched"] == STEPS * 2 * (ranks - 1) * MICRO_BATCHES, trace["messages"]
    assert {rank["waiting_rule"] for rank in trace["ranks"]} == {"receives"}, trace["ranks"]
    busy = [rank["busy_ns"] for rank in trace["ranks"]]
    bounds = [(min(step["least_ns"] for step in steps), max(step["most_ns"] for step in steps)) for steps in seen]
    for found, (least, most) in zip(busy, bounds):
        assert 0.9 * least < found < 1.05 * most, (kind, ranks, busy, bounds)
    assert busy[-1] >= MICRO_BATCHES * NAP * 1e9, (kind, ranks, busy)
    assert all(rank["waited_ns"] > 0 for rank in trace["ranks"][:-1]), (kind, ranks, trace["ranks"])

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
    print(f"{kind} on {ranks} ranks: the order, {error:+.2%} simulated, clock off by {shift + LATE_NS} ns")
    print(f"busy {busy}, by the ranks themselves {bounds}")


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
