"""check(): will this schedule hang, or mix up messages, on this group?"""

from __future__ import annotations

from typing import Any

from .. import _core
from .._core import Policy, Verdict
from .groups import preset_of
from .lists import order_of, stages_of


def preset(group: Any = None, *, device: Any = "cpu") -> str:
    """The policy under which the installed release sends between stages of a device over the group, by its name.

    Without a group it is that of all processes. InputError for a release or a back end that is not known.
    """
    return preset_of(group, device)


def check(schedule: Any, *, group: Any = None, device: Any = None, policy: str | Policy | None = None) -> Verdict:
    """Will it hang, or mix up messages? Computed from the lists, on each rank alone; nothing is sent.

    schedule is an object of PyTorch's, before its first step or after it; or its lists of actions, by rank
    (pipeline_order_with_comms); or an Order or a Plan. It is judged as the installed release sends over the group: that
    of the object's stages, else the one given, else that of all processes; device is for lists, whose stages are on the
    CPU unless it says otherwise. A policy takes the place of all this.
    """
    order = order_of(schedule)
    if policy is None:
        stage = next(iter(stages_of(schedule)), None)
        if stage is not None:
            group, device = stage.group, stage.device
        policy = preset_of(group, device or "cpu", stage)
    return _core.check(order, policy)
