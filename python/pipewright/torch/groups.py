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


def gathered(mine: Any, group: Any) -> list[Any]:
    """What each rank of the group has, on all of them, in the order of the ranks: by messages to and from rank 0.

    A collective of gloo's may free its tensors on a thread of its own after the call has returned, and a process that ends
    meanwhile is aborted (github.com/pytorch/pytorch/issues/190489). A message has no such thread.
    """
    dist = require_torch().distributed
    found: list[Any] = [None] * dist.get_world_size(group)
    others = range(1, len(found))
    if dist.get_rank(group) != 0:
        dist.send_object_list([mine], group=group, group_dst=0)
        dist.recv_object_list(found, group=group, group_src=0)
        return found
    found[0] = mine
    for other in others:
        one = [None]
        dist.recv_object_list(one, group=group, group_src=other)
        (found[other],) = one
    for other in others:
        dist.send_object_list(found, group=group, group_dst=other)
    return found


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
