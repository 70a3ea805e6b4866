"""Plans, simulates and checks pipeline-parallel training: the libraries of the command `pipewright`.

>>> import pipewright
>>> order = pipewright.schedule("1f1b", pp=4, micro_batches=8)
>>> timeline = pipewright.simulate(order, cost="F=1ms,B=2ms")
>>> timeline.makespan_ns
33000000

See docs/python.md.
"""

from ._core import (
    Order,
    Plan,
    Policy,
    Timeline,
    Tuned,
    Verdict,
    WhatIf,
    check,
    kinds,
    plan_of_order,
    policies,
    schedule,
    schedules,
    simulate,
    tune,
)
from .errors import Error, InputError, InternalError, MachineError

__all__ = [
    "Error",
    "InputError",
    "InternalError",
    "MachineError",
    "Order",
    "Plan",
    "Policy",
    "Timeline",
    "Tuned",
    "Verdict",
    "WhatIf",
    "check",
    "kinds",
    "plan_of_order",
    "policies",
    "schedule",
    "schedules",
    "simulate",
    "tune",
]
