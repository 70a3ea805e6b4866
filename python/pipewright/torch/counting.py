"""What a layer computes and keeps for its backward, found by running it once."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator

from .installed import require_torch


@dataclass
class Counted:
    output: Any
    operations: float  # of the forward
    kept: int  # bytes, beside input and output


def tensors_in(value: Any) -> list[Any]:
    torch = require_torch()
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def storage_of(tensor: Any) -> tuple[int, int]:
    """Where the numbers lie, and how many bytes these are."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


@contextmanager
def counting_operations(counts: list[float]) -> Iterator[None]:
    """Adds two for each multiplication with its addition, as PyTorch's own counter does; of operators that this does not
    know one for each number that comes out of them."""
    torch = require_torch()
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    as_views = {torch.ops.aten._unsafe_view, torch.ops.aten.lift_fresh}

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            formula = flop_registry.get(func._overloadpacket)
            if formula is not None:
                counts.append(float(formula(*args, **kwargs, out_val=out)))
            elif not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
                moves_nothing = func.is_view or func._overloadpacket in as_views
                counts.append(0.0 if moves_nothing else float(sum(one.numel() for one in tensors_in(out))))
            return out

    with Counter():
        yield


def counted(layer: Any, inputs: tuple[Any, ...]) -> Counted:
    """One forward of the layer, as a stage of its own runs it."""
    torch = require_torch()
    given = [one.detach().requires_grad_(one.is_floating_point()) for one in inputs]
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        place, size = storage_of(tensor)
        kept[place] = size
        return tensor

    counts: list[float] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), counting_operations(counts):
        output = layer(*given)
    for known in [*given, *tensors_in(output), *layer.parameters(), *layer.buffers()]:
        kept.pop(storage_of(known)[0], None)
    return Counted(output, sum(counts), sum(kept.values()))
