"""bind(): cores of its own for each process of a machine."""

from __future__ import annotations

import os

from ..errors import InputError


def share_of(cores: list[int], process: int, processes: int) -> list[int]:
    """Of cores that are dealt out evenly, in their order; all of them where there are fewer than processes."""
    if len(cores) < processes:
        return cores
    return cores[process * len(cores) // processes : (process + 1) * len(cores) // processes]


def of_torchrun(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdigit():
        raise InputError(f"bind() reads {name}, which torchrun sets: here it is '{text}'; give process and processes")
    return int(text)


def bind(process: int | None = None, processes: int | None = None) -> list[int]:
    """Binds this process to its share of the machine's cores, and returns them.

    Call it first: threads that run already stay where they are. process is this one's number among the processes of
    this machine; without them torchrun's LOCAL_RANK and LOCAL_WORLD_SIZE count. With fewer cores than processes all
    share all. Without it a message may bring both its processes onto one core, and one of them waits for the
    scheduler's slice, 3 to 5 ms.
    """
    process = of_torchrun("LOCAL_RANK") if process is None else process
    processes = of_torchrun("LOCAL_WORLD_SIZE") if processes is None else processes
    if not 0 <= process < processes:
        raise InputError(f"process: expected 0 to {processes - 1}, got {process}")
    if not hasattr(os, "sched_setaffinity"):
        raise InputError("bind() needs Linux: this system does not bind processes to cores")
    share = share_of(sorted(os.sched_getaffinity(0)), process, processes)
    os.sched_setaffinity(0, share)
    return share
