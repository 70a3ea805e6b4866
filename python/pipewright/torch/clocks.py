"""One clock for the ranks of a group."""

from __future__ import annotations

import time
from typing import Any

from .groups import gathered
from .installed import require_torch

PINGS = 16


def machine() -> str:
    """A name that processes share where they share the steady clock: this start of this machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def shift_by_pings(group: Any) -> tuple[int, int]:
    """What to add to this rank's steady clock to have rank 0's, and how far the truth may be from it, in ns.

    Every rank of the group calls it. Of all pings the shortest counts: the answer was written between its two ends.
    """
    torch = require_torch()
    dist = torch.distributed
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    best = (0, 0)
    for other in range(1, size):
        for ping in range(PINGS):
            here = torch.zeros(1, dtype=torch.int64)
            if rank == 0:
                dist.recv(here, group=group, group_src=other)
                here[0] = time.perf_counter_ns()
                dist.send(here, group=group, group_dst=other)
            elif rank == other:
                left = time.perf_counter_ns()
                dist.send(here, group=group, group_dst=0)
                dist.recv(here, group=group, group_src=0)
                back = time.perf_counter_ns()
                found = (int(here[0]) - (left + back) // 2, (back - left + 1) // 2)
                best = found if ping == 0 or found[1] < best[1] else best
    return best


def clock_shift(group: Any) -> tuple[int, int]:
    """The same without pings where all ranks are on one machine: its processes have one steady clock."""
    machines = gathered(machine(), group)
    if machines[0] and len(set(machines)) == 1:
        return 0, 0
    return shift_by_pings(group)
