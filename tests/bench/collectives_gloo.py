"""The same collectives by gloo, for bench_collectives: collectives_gloo.py OPERATION MOST_BYTES, started by
tests/support/start_job with a Python that has torch."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

operation, most = sys.argv[1], int(sys.argv[2])
own, members = int(os.environ["PIPEWRIGHT_RANK"]), int(os.environ["PIPEWRIGHT_WORLD_SIZE"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=os.environ["PIPEWRIGHT_RENDEZVOUS"] + ".gloo", rank=own,
                        world_size=members)
values, others = torch.zeros(most // 4), torch.zeros(most // 4)


def call(size):
    part = size // members
    if operation == "all_reduce":
        dist.all_reduce(values[:size])
    elif operation == "reduce_scatter":
        dist.reduce_scatter_tensor(others[:part], values[: part * members])
    elif operation == "all_gather":
        dist.all_gather_into_tensor(values[: part * members], others[:part])
    elif operation == "all_to_all":
        dist.all_to_all_single(others[: part * members], values[: part * members])
    else:
        dist.broadcast(values[:size], 0)


size = 1024
while size <= most:
    calls, batches = min(50, max(1, (1 << 20) // size)), 5 if size > 16 << 20 else 11
    seconds = []
    for batch in range(batches + 1):
        begin = time.perf_counter()
        for _ in range(calls):
            call(size // 4)
        if batch > 0:
            seconds.append((time.perf_counter() - begin) / calls)
    if own == 0:
        print(size, f"{statistics.median(seconds):.9f}", flush=True)
    size *= 4
dist.barrier()
dist.destroy_process_group()
