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
    held: int  # bytes, while a forward or a backward runs


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


def counted(layer: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Counted:
    """One forward of the layer, as a stage of its own runs it; what it takes by name counts as given."""
    torch = require_torch()
    given = [one.detach().requires_grad_(one.is_floating_point()) for one in inputs]
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        place, size = storage_of(tensor)
        kept[place] = size
        return tensor

    counts: list[float] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), counting_operations(counts):
        output = layer(*given, **named)
    for known in [*given, *named.values(), *tensors_in(output), *layer.parameters(), *layer.buffers()]:
        kept.pop(storage_of(known)[0], None)
    return Counted(output, sum(counts), sum(kept.values()), held(layer, inputs, named))


class Alive:
    """Bytes of what operators have made and somebody still has; what is given from outside does not count."""

    def __init__(self, given: list[Any]) -> None:
        self.sizes: dict[int, tuple[Any, int]] = {}  # by storage
        self.most = 0
        self.leave_out(given)

    def leave_out(self, given: list[Any]) -> None:
        for tensor in given:
            self._see(tensor, 0)

    def saw(self, made: list[Any]) -> None:
        for tensor in made:
            self._see(tensor, storage_of(tensor)[1])
        self.most = max(self.most, self.now())

    def now(self) -> int:
        self.sizes = {key: known for key, known in self.sizes.items() if not known[0].expired()}
        return sum(size for _, size in self.sizes.values())

    def _see(self, tensor: Any, size: int) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = StorageWeakRef(tensor.untyped_storage())
        self.sizes.setdefault(storage.cdata, (storage, size))


@contextmanager
def watching_memory(alive: Alive) -> Iterator[None]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            alive.saw(tensors_in(out))
            return out

    with Watched():
        yield


def held(layer: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> int:
    """Bytes that a forward holds beside what is there after it, or a backward beside what was there before it and the
    gradients of the inputs. The gradients of the parameters are there already, as for all micro-batches but the first."""
    torch = require_torch()
    most = 0
    for _ in range(2):  # the first makes these gradients
        given = [one.detach().requires_grad_(one.is_floating_point()) for one in inputs]
        alive = Alive([*given, *named.values(), *layer.parameters(), *layer.buffers()])
        with watching_memory(alive):
            outputs = tensors_in(layer(*given, **named))
        before = alive.now()
        forward, alive.most = alive.most - before, 0
        back = [one for one in outputs if one.requires_grad]
        gradients = [torch.ones_like(one) for one in back]
        alive.leave_out([*gradients, *(one.grad for one in layer.parameters() if one.grad is not None)])
        with watching_memory(alive):
            if back:
                torch.autograd.backward(back, gradients)
        made = sum(storage_of(one.grad)[1] for one in given if one.grad is not None)
        most = max(forward, alive.most - before - made, 0)
    return most
