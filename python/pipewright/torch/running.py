"""schedule(): an order in PyTorch's own runtime."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any, Callable, Sequence

from .._core import Order, Plan, torch_file
from ..errors import InputError
from .installed import require_torch
from .tying import summed


def require_fit(order: Order, stages: Sequence[Any]) -> None:
    """InputError where the stages of this rank are not those that the order computes here."""
    if not stages:
        raise InputError(f"{order.title}: schedule() needs the stages of this rank, and there are none")
    first = stages[0]
    if first.group_size != order.ranks:
        raise InputError(
            f"{order.title} is for {order.ranks} ranks, and the stages' group has {first.group_size}; start as many "
            "processes, or take an order for these"
        )
    if first.num_stages != order.stages:
        raise InputError(
            f"{order.title} has {order.stages} stages, and the model was divided into {first.num_stages}; divide it "
            "as the order does"
        )
    expected = order.stages_of(first.group_rank)
    found = [stage.stage_index for stage in stages]
    if found != expected:
        raise InputError(
            f"{order.title} computes the stages {expected} on rank {first.group_rank}, which was given {found}; give "
            "each rank its own (Order.stages_of)"
        )


def reshards(submod: Any) -> bool:
    """Whether layers inside a stage, sharded by FSDP2, give their whole weights away after a forward; the stage's own
    module does not."""
    fsdp = require_torch().distributed.fsdp
    for module in submod.modules():
        if module is submod or not isinstance(module, fsdp.FSDPModule):
            continue
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        if any(getattr(group, "post_forward_mesh_info", None) is not None for group in groups):
            return True
    return False


def require_reduced(order: Order, stages: Sequence[Any]) -> None:
    """InputError where PyTorch's runtime would leave gradients apart, or out, without a word: what
    DistributedDataParallel sums hangs on whole backwards, and W looks for gradients of the weights that F used."""
    torch = require_torch()
    if not any(re.search(r"\d[IW]\d", cell) for row in order.rows for cell in row):
        return
    if any(isinstance(stage.submod, torch.nn.parallel.DistributedDataParallel) for stage in stages):
        raise InputError(
            f"{order.title} computes gradients of weights apart (W), and DistributedDataParallel does not sum those of "
            "its replicas then; take FSDP2's fully_shard, or an order with whole backwards"
        )
    if any(reshards(stage.submod) for stage in stages):
        raise InputError(
            f"{order.title} computes gradients of weights apart (W), and PyTorch finds none of layers whose whole weights "
            "FSDP2 frees after the forward; give fully_shard(layer, reshard_after_forward=False), or take an order with "
            "whole backwards"
        )


def schedule(order: Order | Plan, stages: Sequence[Any], loss_fn: Callable[..., Any], **options: Any) -> Any:
    """A schedule object of PyTorch that runs exactly this order, through PyTorch's own runtime.

    stages are the PipelineStages of this rank, and every rank gives loss_fn. options are those of PyTorch's schedules:
    scale_grads, args_chunk_spec, kwargs_chunk_spec, output_merge_spec. PyTorch adds the transfers, reductions and
    gatherings to computations alone; an order that writes transfers is run as it is written. InputError where this
    release of PyTorch cannot run the order, or the stages are not its own.
    """
    torch = require_torch()
    if isinstance(order, Plan):
        order = order.order
    if not isinstance(order, Order):
        raise InputError(f"schedule() runs an Order or a Plan, not a {type(order).__name__}; Order.load reads a CSV")
    if loss_fn is None:
        raise InputError(f"{order.title} is an order of a training: give loss_fn, on every rank")
    text, form = torch_file(order, torch.__version__)
    stages = sorted(stages, key=lambda stage: stage.stage_index)
    require_fit(order, stages)
    require_reduced(order, stages)
    runtime = torch.distributed.pipelining.schedules._PipelineScheduleRuntime(
        stages, order.micro_batches, loss_fn=loss_fn, **options
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "order.csv")
        with open(path, "w") as file:
            file.write(text)
        runtime._load_csv(path, format=form)
    ties = [one for stage in stages for one in getattr(stage, "pipewright_ties", [])]
    if ties:
        runtime.step = summed(runtime.step, ties)
    return runtime
