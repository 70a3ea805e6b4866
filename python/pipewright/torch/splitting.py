"""split(): the stages of a plan."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .._core import Plan
from ..errors import InputError
from .capturing import Captured, named_children
from .chaining import chained
from .groups import group_or_default
from .installed import require_torch
from .tying import tie, uses_by_stage


def named_layers(model: Any) -> list[tuple[str, Any]]:
    """The layers with the names that they have in the model."""
    torch = require_torch()
    if isinstance(model, Captured):
        return [(name.replace(".", "_"), layer) for name, layer in model.layers]
    if isinstance(model, torch.nn.Module):
        if isinstance(model, (torch.nn.Sequential, torch.nn.ModuleList)):
            return named_children(model)
        raise InputError(
            f"split() takes a chain of layers, a torch.nn.Sequential or a list, and the model is a "
            f"{type(model).__name__}; list its layers, or capture() them"
        )
    layers = [(str(place), layer) for place, layer in enumerate(model)]
    for place, layer in layers:
        if not isinstance(layer, torch.nn.Module):
            raise InputError(f"layer {place} of the model is a {type(layer).__name__}, not a torch.nn.Module")
    return layers


def require_same_model(layers: Sequence[tuple[str, Any]], plan: Plan, divides: bool) -> None:
    """InputError where the plan is of a model of another depth, or stages that somebody divides would share parameters."""
    planned = plan.layer_names
    if len(layers) != len(planned):
        raise InputError(
            f"{plan.title} is a plan of a model of {len(planned)} layers ({planned[0]} to {planned[-1]}), and the "
            f"given model has {len(layers)}; give the layers that were planned, one by one"
        )
    for name, _, stages in uses_by_stage(layers, plan) if divides else []:
        raise InputError(
            f"{name} is a parameter of stages {', '.join(map(str, stages))} of {plan.title}, and what parallelize makes of "
            "them is not summed; plan them into one stage, or give each its own"
        )


def require_mesh(plan: Plan, size: int, divides: bool) -> None:
    """InputError where the group is not the plan's pipeline, or nobody divides its layers."""
    divided = {axis: plan.mesh[axis] for axis in ("tp", "cp", "ep") if plan.mesh[axis] > 1}
    if divided and not divides:
        axes = ", ".join(f"{axis} {degree}" for axis, degree in divided.items())
        raise InputError(
            f"{plan.title} divides layers among devices ({axes}), and split() does not; give parallelize, a function "
            "that does it to a stage's module"
        )
    if size != plan.mesh["pp"]:
        replicas = "" if plan.mesh["dp"] == 1 else f" (one of its {plan.mesh['dp']} replicas: give its group)"
        raise InputError(
            f"{plan.title} is for a pipeline of {plan.mesh['pp']} ranks{replicas}, and the group has {size}; start as "
            "many processes, or plan for these"
        )


def split(
    model: Any,
    plan: Plan,
    *,
    device: Any = None,
    group: Any = None,
    parallelize: Callable[[Any, int], Any] | None = None,
) -> list[Any]:
    """This rank's PipelineStages of a model, cut as the plan says, in the order of their numbers.

    model is a torch.nn.Sequential, a list of layers that follow one another, or what capture() made of a model; its
    layers are those of the plan's model, one by one. Only this rank's go to the device (the one where they are, unless it
    is given), and they keep their names. The group is the pipeline's; without one it is that of all processes.

    A parameter that several stages use is one of its own in each, and schedule() sums their gradients behind each step, so
    that they stay alike; but not beside parallelize.

    parallelize(module, stage) is called with each stage's module on its device, a torch.nn.Sequential of its layers, and
    what it returns takes its place, or the module itself where it returns None: fully_shard it, wrap it in
    DistributedDataParallel, or divide its layers by parallelize_module, over a mesh beside the pipeline's group.
    """
    torch = require_torch()
    group = group_or_default(group)
    require_mesh(plan, torch.distributed.get_world_size(group), parallelize is not None)
    layers = named_layers(model)
    require_same_model(layers, plan, parallelize is not None)
    rank = torch.distributed.get_rank(group)
    modules = {}
    for index in plan.order.stages_of(rank):
        first, end = plan.layers[index]
        modules[index] = chained(layers[first:end], layers)
    ties = tie(layers, plan, modules, group)
    stages = []
    for index, module in modules.items():
        home = device or next((parameter.device for parameter in module.parameters()), "cpu")
        module = module.to(home)
        if parallelize is not None:
            replaced = parallelize(module, index)
            module = module if replaced is None else replaced
        stage = torch.distributed.pipelining.PipelineStage(
            module, index, len(plan.layers), torch.device(home), group=group
        )
        stage.pipewright_ties = [] if stages else ties
        stages.append(stage)
    return stages
