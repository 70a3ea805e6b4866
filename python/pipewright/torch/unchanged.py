"""What is tried with a model leaves it as it was."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Sequence

from .installed import require_torch


@contextmanager
def as_it_was(layers: Sequence[Any], updates: bool = False) -> Iterator[None]:
    """Running statistics, gradients, the state of chance and, where something updates them, parameters are afterwards as
    before. Inside there are no gradients."""
    torch = require_torch()
    chance = torch.get_rng_state()
    parameters = [one for layer in layers for one in layer.parameters()]
    kept = [buffer for layer in layers for buffer in layer.buffers()] + (parameters if updates else [])
    values = [tensor.detach().clone() for tensor in kept]
    gradients = [parameter.grad for parameter in parameters]
    forget_gradients(layers)
    try:
        yield
    finally:
        torch.set_rng_state(chance)
        with torch.no_grad():
            for tensor, value in zip(kept, values):
                tensor.copy_(value)
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient


def forget_gradients(layers: Sequence[Any]) -> None:
    for layer in layers:
        for parameter in layer.parameters():
            parameter.grad = None


@contextmanager
def without_cache(model: Any) -> Iterator[None]:
    """A model of transformers without the keys and values that it keeps to generate from, which a training does not use and
    which are no tensors."""
    configs = [getattr(module, "config", None) for module in model.modules()]
    keeping = {id(config): config for config in configs if getattr(config, "use_cache", None) is True}
    for config in keeping.values():
        config.use_cache = False
    try:
        yield
    finally:
        for config in keeping.values():
            config.use_cache = True
