"""Layers that follow one another as one module, and inputs of a model that layers take by name: each stage of a pipeline is
given these by step(), and they pass no cut."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any, Mapping, Sequence

from ..errors import InputError
from .installed import require_torch


def taken_by(layer: Any) -> tuple[str, ...]:
    """The names of such inputs; a layer that is the user's own has none."""
    return tuple(getattr(layer, "pipewright_takes", ()))


def by_name(layer: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the layer takes. InputError where one is missing."""
    for name in taken_by(layer):
        if name not in named:
            raise InputError(f"layers of this stage take the input {name}: give it to step() on every rank, {name}=...")
    return {name: named[name] for name in taken_by(layer)}


@cache
def chain_class() -> Any:
    class Chain(require_torch().nn.Sequential):  # type: ignore[misc]
        """A Sequential whose layers may take inputs of the model by name."""

        def forward(self, *inputs: Any, **named: Any) -> Any:
            for layer in self:
                inputs = (layer(*inputs, **by_name(layer, named)),)
            return inputs[0]

    return Chain


def chained(part: Sequence[tuple[str, Any]], model: Sequence[tuple[str, Any]]) -> Any:
    """Some layers of a model as a torch.nn.Sequential, by their names. PyTorch gives a named input to every stage, to those
    that do not take it, too."""
    any_taken = any(taken_by(layer) for _, layer in model)
    return (chain_class() if any_taken else require_torch().nn.Sequential)(OrderedDict(part))


def parted(inputs: Sequence[Any], shared: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A model's inputs as its stages take them: those of the first one in their order, and those by name."""
    places = set(shared.values())
    first = tuple(one for place, one in enumerate(inputs) if place not in places)
    return first, {name: inputs[place] for name, place in shared.items()}
