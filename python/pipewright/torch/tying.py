"""Parameters that several stages use. Each stage has one of its own with the same values; after a step their gradients are
summed, so that an optimizer that treats them alike keeps them alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from .._core import Plan
from ..errors import InputError
from .installed import require_torch


@dataclass
class Tie:
    name: str  # of the first use, such as "words.weight"
    parameters: list[Any]  # this rank's, one a stage
    group: Any  # of the ranks that have one; None: this rank alone


def uses_by_stage(layers: Sequence[tuple[str, Any]], plan: Plan) -> list[tuple[str, Any, list[int]]]:
    """Of each parameter that several stages use: the name of the first use, the parameter, and the stages."""
    found: dict[int, tuple[str, Any, list[int]]] = {}
    for stage, (first, end) in enumerate(plan.layers):
        for name, layer in layers[first:end]:
            for key, parameter in layer.named_parameters():
                stages = found.setdefault(id(parameter), (f"{name}.{key}", parameter, []))[2]
                if stage not in stages:
                    stages.append(stage)
    return [use for use in found.values() if len(use[2]) > 1]


def own_copy(module: Any, parameter: Any, before: Sequence[Any], name: str) -> Any:
    """Puts a parameter of its own in a stage's module where it has that of another stage on this rank."""
    torch = require_torch()
    others = {id(inner) for other in before for inner in other.modules()}
    twin = torch.nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
    for inner in module.modules():
        for key, value in inner._parameters.items():
            if value is not parameter:
                continue
            if id(inner) in others:
                raise InputError(
                    f"{name} is of a module that two stages of one rank are made of; give each a module of its own, or plan "
                    "them into one stage"
                )
            inner._parameters[key] = twin
    return twin


def tie(layers: Sequence[tuple[str, Any]], plan: Plan, modules: dict[int, Any], group: Any) -> list[Tie]:
    """Of this rank's stages, by number, on every rank of the pipeline's group."""
    dist = require_torch().distributed
    global_ranks = dist.get_process_group_ranks(group)
    rank_of = {stage: rank for rank in range(len(global_ranks)) for stage in plan.order.stages_of(rank)}
    groups: dict[tuple[int, ...], Any] = {}
    ties = []
    for name, parameter, stages in uses_by_stage(layers, plan):
        mine = [stage for stage in stages if stage in modules]
        ranks = tuple(sorted({global_ranks[rank_of[stage]] for stage in stages}))
        if not mine:
            continue
        twins = [
            own_copy(modules[stage], parameter, [modules[other] for other in mine[:place]], name) if place else parameter
            for place, stage in enumerate(mine)
        ]
        if len(ranks) > 1 and ranks not in groups:
            groups[ranks] = dist.new_group(list(ranks), use_local_synchronization=True)
        ties.append(Tie(name, twins, groups.get(ranks)))
    return ties


def summed(step: Any, ties: Sequence[Tie]) -> Any:
    """A schedule's step with the sums behind it. What earlier steps have accumulated is summed already."""
    dist = require_torch().distributed

    def step_and_sum(*arguments: Any, **options: Any) -> Any:
        before = [[parameter.grad for parameter in one.parameters] for one in ties]
        for one in ties:
            for parameter in one.parameters:
                parameter.grad = None
        result = step(*arguments, **options)
        for one, earlier in zip(ties, before):
            made = [parameter.grad for parameter in one.parameters if parameter.grad is not None]
            total = sum(made[1:], made[0].clone()) if made else one.parameters[0].detach().clone().zero_()
            if one.group is not None:
                dist.all_reduce(total, group=one.group)
            for parameter, gradient in zip(one.parameters, earlier):
                parameter.grad = total.clone() if gradient is None else gradient + total
        return result

    return step_and_sum
