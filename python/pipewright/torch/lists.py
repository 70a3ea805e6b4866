"""What PyTorch's schedules will run, as orders."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

from .._core import Order, Plan, torch_single_list
from ..errors import InputError
from .installed import require_torch


def stages_of(schedule: Any) -> list[Any]:
    """The stages of this rank that a schedule object has; of lists none."""
    if hasattr(schedule, "_stages"):
        return list(schedule._stages)
    return [schedule._stage] if hasattr(schedule, "_stage") else []


def order_of_rows(rows: Mapping[int, Sequence[Any]] | Sequence[Sequence[Any]], name: str) -> Order:
    """Of lists of actions, PyTorch's or as text, by rank; None is an idle slot."""
    if isinstance(rows, Mapping):
        if sorted(rows) != list(range(len(rows))):
            raise InputError(f"{name} has lists of the ranks {sorted(rows)}; give those of all ranks, from 0 on")
        rows = [rows[rank] for rank in range(len(rows))]
    ranks = [["" if action is None else str(action) for action in row] for row in rows]
    return Order.parse(json.dumps({"schema": "pipewright.order/1", "ranks": ranks}), name=name)


def order_of(schedule: Any) -> Order:
    """Every action that the schedule will run, with its transfers and waits."""
    if isinstance(schedule, Order):
        return schedule
    if isinstance(schedule, Plan):
        return schedule.order
    if isinstance(schedule, (Mapping, list, tuple)):
        return order_of_rows(schedule, "the lists")
    name = type(schedule).__name__
    rows = getattr(schedule, "pipeline_order_with_comms", None)
    if rows:
        return order_of_rows(rows, name)
    schedules = require_torch().distributed.pipelining.schedules
    if isinstance(schedule, schedules.PipelineScheduleSingle):
        return torch_single_list(name, schedule._num_stages, schedule._n_microbatches)
    if isinstance(schedule, schedules._PipelineScheduleRuntime):
        raise InputError(f"this {name} has no lists yet: load an order into it first")
    raise InputError(
        f"what a {name} will do cannot be read: give a schedule object of PyTorch's, its lists of actions by rank, "
        "an Order or a Plan"
    )
