"""How long a message between two gloo processes takes, by which of them computes meanwhile: the wait of the receiver after
its computation, and the way from the sender's call to the end of that wait. 64 KiB, computations of about 3.4 ms.

    OMP_NUM_THREADS=1 build/peers/torch/bin/python tests/bench/torch_messages.py
"""

import argparse
import statistics
import tempfile
import time

import torch
from torch import nn
from torch.distributed.pipelining import schedules

BYTES, COMPUTES_NS, SETTLES_S = 65536, 3.4e6, 0.0003


class Work:
    """Products of about that length, on this process's one thread."""

    def __init__(self):
        self.layer, self.x = nn.Linear(256, 256), torch.randn(128, 256)
        began = time.perf_counter_ns()
        self.run(200)
        self.products = max(1, round(200 * COMPUTES_NS / (time.perf_counter_ns() - began)))

    def run(self, products=None):
        with torch.no_grad():
            for _ in range(self.products if products is None else products):
                self.layer(self.x)


def message(rank, operation, tensor, works):
    """When it was called, when the own computation ended, and when the message had been waited for."""
    called = time.perf_counter_ns()
    under_way = schedules._batch_p2p([torch.distributed.P2POp(operation, tensor, 1 - rank)])
    if works is not None:
        works.run()
    computed = time.perf_counter_ns()
    schedules._wait_batch_p2p(under_way)
    return called, computed, time.perf_counter_ns()


def measure(rank, folder, repeats):
    torch.set_num_threads(1)
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    work, tensor = Work(), torch.zeros(BYTES, dtype=torch.uint8)
    for computing, name in (((), "neither"), ((1,), "the receiver"), ((0,), "the sender"), ((0, 1), "both")):
        waits, ways = [], []
        for _ in range(repeats):
            dist.barrier()
            if rank == 0:
                time.sleep(SETTLES_S)  # the receiver has called
            times = message(rank, dist.irecv if rank else dist.isend, tensor, work if rank in computing else None)
            sent = torch.tensor([times[0]])
            dist.broadcast(sent, 0)  # one host has one such clock
            waits.append((times[2] - times[1]) / 1e6)
            ways.append((times[2] - int(sent)) / 1e6)
        if rank == 1:
            for what, found in (("wait after its computation", waits), ("way", ways)):
                tenths = statistics.quantiles(found, n=10)
                print(
                    f"{name:12} computes, {what:26} mean {statistics.mean(found):6.3f} ms, 10 % {tenths[0]:6.3f}, "
                    f"50 % {tenths[4]:6.3f}, 90 % {tenths[8]:6.3f}, most {max(found):6.3f}"
                )
    dist.destroy_process_group()


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--repeats", type=int, default=300)
    asked = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, (folder, asked.repeats), nprocs=2)


if __name__ == "__main__":
    main()
