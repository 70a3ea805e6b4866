"""In PyTorch's hands: the user's own model and processes, run by PyTorch, in an order of ours.

capture   the model as layers that a plan can cut, with what each costs
measure   what these layers cost here, as a profile
check     will this schedule hang, or mix up messages, on this group?
schedule  an order or a plan as a schedule object of PyTorch's runtime
split     the stages of a plan
bind      cores of its own for each process of a machine
record    what ran, as a trace
explain   why a job hangs, from the dumps of the Flight Recorder

PyTorch is imported at the first use. See docs/python.md.
"""

from .binding import bind
from .capturing import Captured, capture
from .checking import check, preset
from .explaining import explain
from .measuring import measure
from .recording import record
from .running import schedule
from .splitting import split

__all__ = ["Captured", "bind", "capture", "check", "explain", "measure", "preset", "record", "schedule", "split"]
