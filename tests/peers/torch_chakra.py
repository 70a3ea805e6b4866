"""Host execution traces of a pipeline by PyTorch 2.13 (torch.profiler.ExecutionTraceObserver, gloo), joined with the
profiler's traces of the same step by record function id and written as Chakra's .et, as Chakra's own tools do: `analyze` finds
in them the order that it finds in the profiler's traces, and refuses the host traces alone. Exit status 77 (skipped) where
PyTorch or protobuf is missing.

usage: torch_chakra.py PIPEWRIGHT
"""

import json
import os
import subprocess
import sys
import tempfile

from chakra_files import COMP, analyzed, schema, written
from planned import SKIPPED

RANKS, CHUNKS, MICRO_BATCHES = 2, 2, 4


def work(rank, folder):
    import torch
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B
    from torch.profiler import ExecutionTraceObserver, profile

    torch.set_num_threads(1)
    init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    stages = [
        PipelineStage(torch.nn.Linear(256, 256), rank + RANKS * chunk, RANKS * CHUNKS, torch.device("cpu"))
        for chunk in range(CHUNKS)
    ]
    schedule = ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=torch.nn.functional.mse_loss)
    batch = torch.randn(64 * MICRO_BATCHES, 256)

    def step():
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=batch, losses=[])

    step()
    observer = ExecutionTraceObserver().register_callback(os.path.join(folder, f"host.{rank}.json"))
    with profile(execution_trace_observer=observer) as profiler:
        step()
    profiler.export_chrome_trace(os.path.join(folder, f"rank{rank}.json"))
    destroy_process_group()


def joined(folder, rank, node):
    """The host's nodes with the profiler's times. Both count microseconds from the same zero on all ranks of one machine."""
    with open(os.path.join(folder, f"host.{rank}.json")) as file:
        host = json.load(file)
    with open(os.path.join(folder, f"rank{rank}.json")) as file:
        events = json.load(file)["traceEvents"]
    times = {}
    for event in events:
        id_ = event.get("args", {}).get("Record function id") if event["ph"] == "X" else None
        if id_:
            times[id_] = (int(event["ts"]), int(event["dur"]))
    nodes = []
    for each in sorted(host["nodes"], key=lambda n: n["id"]):
        facts = {attr["name"]: attr["value"] for attr in each["attrs"]}
        start, took = times.get(facts["rf_id"], (0, 0))
        made = node(id=each["id"], name=each["name"], type=COMP, start_time_micros=start, duration_micros=took)
        made.ctrl_deps.append(each["ctrl_deps"])
        made.attr.add(name="is_cpu_op", bool_val=True)
        nodes.append(made)
    return nodes


def main():
    command = os.path.abspath(sys.argv[1])
    try:
        import torch.multiprocessing

        metadata, node = schema()
    except ImportError as error:
        print(f"skipped: {error}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, args=(folder,), nprocs=RANKS)
        alone = subprocess.run([command, "analyze", os.path.join(folder, "host.0.json")], capture_output=True, text=True)
        assert alone.returncode == 2 and "operators and no times" in alone.stderr, alone.stderr
        ours, theirs = os.path.join(folder, "et"), os.path.join(folder, "kineto")
        os.mkdir(ours), os.mkdir(theirs)
        for rank in range(RANKS):
            nodes = joined(folder, rank, node)
            written(os.path.join(ours, f"job.{rank}.et"), metadata(version="0.0.4"), nodes)
            os.rename(os.path.join(folder, f"rank{rank}.json"), os.path.join(theirs, f"rank{rank}.json"))
        order, took = analyzed(command, ours)
        wanted, expected = analyzed(command, theirs)
        assert order == wanted, f"{order}\n{wanted}"
        assert abs(took - expected) < 0.01 * expected + 2000, f"step {took} ns, by the profiler's traces {expected} ns"
        print(f"{len(nodes)} nodes of rank {RANKS - 1}: the order of the profiler's traces, step {took} beside {expected} ns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
