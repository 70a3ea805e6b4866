"""record(): when each action of PyTorch's runtime ran, as a trace of ours."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import Any, Iterator

from .._core import write_measured_trace
from ..errors import InputError
from .clocks import clock_shift
from .groups import gathered, group_or_default, preset_of
from .installed import require_torch
from .lists import order_of, stages_of


class Watch:
    """The actions of this rank, one after the other, in whole steps."""

    def __init__(self) -> None:
        self.spans: list[list[int]] = []  # begin, end and waiting, in ns
        self.handed: list[int] = []  # when the runtime went on: the end, but of receives
        self.running = False
        self._receives: dict[int, int] = {}  # works of a receive by identity, while they are under way

    def begin(self) -> None:
        self.spans.append([time.perf_counter_ns(), 0, 0])
        self.running = True

    def end(self) -> None:
        self.spans[-1][1] = time.perf_counter_ns()
        self.handed.append(self.spans[-1][1])
        self.running = False

    def issued(self, works: Any) -> None:
        if self.running and works:
            self._receives[id(works)] = len(self.spans) - 1

    def waited(self, works: Any, began: int) -> None:
        now = time.perf_counter_ns()
        if self.running:
            self.spans[-1][2] += now - began
            transfer = self._receives.pop(id(works), None) if works else None
            if transfer is not None:
                self.spans[transfer][1] = now


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """PyTorch's runtime tells the watch what it does. Its names for that are the same from 2.9 to 2.13."""
    schedules = require_torch().distributed.pipelining.schedules
    names = ("record_function", "_batch_p2p", "_wait_batch_p2p")
    missing = [name for name in names if not hasattr(schedules, name)]
    if missing:
        raise InputError(f"record() does not know this release of PyTorch, whose runtime has no {missing[0]}")
    record_function, batch, wait = (getattr(schedules, name) for name in names)

    class Watched(record_function):
        def __enter__(self) -> Any:
            entered = super().__enter__()
            if self.name.startswith("PP:"):
                watch.begin()
            return entered

        def __exit__(self, *words: Any) -> Any:
            if self.name.startswith("PP:"):
                watch.end()
            return super().__exit__(*words)

    def watched_batch(*words: Any, **options: Any) -> Any:
        works = batch(*words, **options)
        watch.issued(works)
        return works

    def watched_wait(works: Any) -> None:
        began = time.perf_counter_ns()
        wait(works)
        watch.waited(works, began)

    schedules.record_function, schedules._batch_p2p, schedules._wait_batch_p2p = Watched, watched_batch, watched_wait
    try:
        yield
    finally:
        schedules.record_function, schedules._batch_p2p, schedules._wait_batch_p2p = record_function, batch, wait


def require_recordable(pipeline: Any) -> None:
    """InputError for what the watch does not see."""
    if not getattr(pipeline, "pipeline_order_with_comms", None):
        raise InputError(
            f"record() takes a schedule that PyTorch runs from a list of actions, and {type(pipeline).__name__} has "
            "none; pipewright.torch.schedule() makes one"
        )
    for stage in pipeline._stages:
        kind = require_torch().device(stage.device).type
        if kind != "cpu":
            raise InputError(
                f"record() takes the times of the host, and stage {stage.stage_index} computes on {kind} after the "
                "host has gone on; use torch.profiler there, whose traces `pipewright analyze` reads"
            )


def steps_of(watch: Watch, actions: int) -> list[list[tuple[int, ...]]]:
    """The watch's spans, step by step. InputError where a step was begun before or ended after the recording."""
    if not watch.spans or len(watch.spans) % actions:
        raise InputError(
            f"{len(watch.spans)} actions ran while they were recorded, and a step has {actions}: put whole steps, and "
            "one at least, into `with record(...)`"
        )
    spans = [tuple(span) for span in watch.spans]
    return [spans[at : at + actions] for at in range(0, len(spans), actions)]


@contextmanager
def record(pipeline: Any, path: str | os.PathLike[str]) -> Iterator[None]:
    """Records the steps that run inside, and writes them as one trace of all ranks; every rank of the group enters it.

    The group's rank 0 writes: the last step, or, where "{step}" stands in the path, each into a file of its own, counted
    from 0; compressed where the name ends in .gz. `pipewright analyze` and `compare` read them. What a computation
    waits for its input is not counted as its work; a transfer ends when its receiver has waited for it. Clocks of
    several machines are set right by pings.
    """
    require_recordable(pipeline)
    watch = Watch()
    with watching(watch):
        yield
    dist = require_torch().distributed
    stage = stages_of(pipeline)[0]
    group = group_or_default(stage.group)
    steps = steps_of(watch, len(pipeline.pipeline_order_with_comms[pipeline.rank]))
    shift, error = clock_shift(group)
    mine = [[(begin + shift, end + shift, waited) for begin, end, waited in step] for step in steps]
    ranks = gathered((mine, error), group)
    if dist.get_rank(group) != 0:
        return
    order, policy = order_of(pipeline), preset_of(group, stage.device, stage)
    metadata = {"source": f"PyTorch {require_torch().__version__}"}
    worst = max(error for _, error in ranks)
    if worst:
        metadata["clocks"] = f"set right by pings, to {worst} ns"
    text = os.fspath(path)
    for number in range(len(steps)) if "{step}" in text else [len(steps) - 1]:
        spans = [rank[number] for rank, _ in ranks]
        write_measured_trace(text.replace("{step}", str(number)), order, policy, spans, metadata)
