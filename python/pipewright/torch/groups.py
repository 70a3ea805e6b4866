"""Process groups in the words in which the libraries ask for them."""

from __future__ import annotations

from typing import Any

from .._core import torch_preset
from ..errors import InputError
from .installed import require_torch


def group_or_default(group: Any) -> Any:
    """The group, or all processes. InputError before init_process_group()."""
    dist = require_torch().distributed
    if group is not None:
        return group
    if not dist.is_initialized():
        raise InputError(
            "there is no process group yet, so nobody knows how it sends: call "
            "torch.distributed.init_process_group() first, or name a policy"
        )
    return dist.group.WORLD


def backend_of(group: Any, device: Any) -> str:
    """The back end that the group has for tensors of the device: "gloo", "nccl"."""
    torch = require_torch()
    kind = torch.device(device).type
    # "cpu:gloo,cuda:nccl"
    config = dict(part.split(":") for part in torch.distributed.get_backend_config(group).split(","))
    if kind not in config:
        raise InputError(
            f"the group has no back end for {kind}, where the stages are, but for {', '.join(config)}; name the "
            "stages' device"
        )
    return config[kind]


def preset_of(group: Any, device: Any, stage: Any = None) -> str:
    """The preset under which the installed release sends between stages of the device over the group."""
    torch = require_torch()
    group = group_or_default(group)
    config = getattr(torch.distributed, "config", None)

    def separates(by: str) -> bool:
        """What the stage has made; without a stage what one would make now."""
        asked = getattr(config, f"pipeline_per_{by}_p2p", False)
        return bool(getattr(stage, f"p2p_per_{by}", asked))

    return torch_preset(
        release=torch.__version__,
        backend=backend_of(group, device),
        eager=getattr(group, "bound_device_id", None) is not None,
        per_direction=separates("direction"),
        per_edge=separates("edge"),
    )
