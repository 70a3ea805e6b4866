"""The PyTorch that is installed here, imported where it is needed."""

from __future__ import annotations

from types import ModuleType

from ..errors import MachineError


def require_torch() -> ModuleType:
    """PyTorch with its pipelining. MachineError where it is missing."""
    try:
        import torch
        import torch.distributed.pipelining
        import torch.distributed.pipelining.schedules
    except ImportError as error:
        raise MachineError(
            f"pipewright.torch needs PyTorch, 2.9 to 2.15, with torch.distributed ({error}); pip install torch"
        ) from error
    return torch
