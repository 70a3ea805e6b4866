"""measure(): what each layer of a model costs in PyTorch's own runtime, on this machine, as a profile."""

from __future__ import annotations

import os
import re
import tempfile
import time
from typing import Any, Callable, Sequence

from .._core import Order, profile_document
from ..errors import InputError
from .binding import bind
from .capturing import Captured, example_of
from .chaining import by_name, chained, parted
from .groups import gathered, group_or_default
from .handing import SharedStep
from .installed import require_torch
from .recording import Watch, watching
from .running import schedule
from .splitting import named_layers
from .transfers import measure_transfers
from .unchanged import as_it_was, forget_gradients

MICRO_BATCHES = 4  # of a measured step
WARM_UP = 2  # steps: connections, shapes, caches
STEPS_MOST = 100_000

ACTION = re.compile(r"(\d+)([A-Z_]+)\d*")
# Once a step PyTorch divides a stage's gradients by the number of micro-batches; that counts with the update.
KINDS = {"F": "f", "B": "b", "I": "i", "W": "w", "REDUCE_GRAD": "opt"}

Samples = dict[str, list[int]]  # by KINDS: ns


def order_of_stages(stages: int, split: bool) -> Order:
    """One rank computes all stages: each micro-batch up, and back as B or as I and then W."""
    cells: list[str] = []
    for m in range(MICRO_BATCHES):
        cells += [f"{stage}F{m}" for stage in range(stages)]
        for kind in ("I", "W") if split else ("B",):
            cells += [f"{stage}{kind}{m}" for stage in reversed(range(stages))]
    return Order.parse(",".join(cells) + "\n", name="the measured order")


class Step:
    """A pipeline on this rank alone, and what its actions took."""

    def __init__(self, modules: Sequence[Any], split: bool, loss_fn: Any, group: Any, device: Any) -> None:
        torch = require_torch()
        stages = [
            torch.distributed.pipelining.PipelineStage(module, place, len(modules), device, group=group)
            for place, module in enumerate(modules)
        ]
        self.pipeline = schedule(order_of_stages(len(modules), split), stages, loss_fn)
        self.actions = [str(action) for action in self.pipeline.pipeline_order_with_comms[0] if action is not None]
        self.samples: list[Samples] = [{"f": [], "b": [], "i": [], "w": [], "opt": []} for _ in modules]
        self.outside: list[int] = []  # by step, the runtime's own time

    def run(self, inputs: tuple[Any, ...], named: dict[str, Any], target: Any, keep: bool) -> None:
        watch = Watch()
        with watching(watch):
            began = time.perf_counter_ns()
            self.pipeline.step(*inputs, target=target, losses=[], **named)
            whole = time.perf_counter_ns() - began
        if not keep:
            return
        inside = 0
        for action, (begin, end, _) in zip(self.actions, watch.spans):
            inside += end - begin
            stage, kind = ACTION.match(action).groups()  # type: ignore[union-attr]
            if kind in KINDS:
                self.samples[int(stage)][KINDS[kind]].append(end - begin)
        self.outside.append(max(0, whole - inside))


def updates_of(layers: Sequence[Any], optimizer: Callable[..., Any] | None) -> list[Any]:
    """An optimizer for each layer that has something to update."""
    if optimizer is None:
        return [None] * len(layers)
    trained = [[one for one in layer.parameters() if one.requires_grad] for layer in layers]
    return [optimizer(parameters) if parameters else None for parameters in trained]


class Meter:
    """Measures micro-batches of one size after the other, on all ranks of the group at once."""

    def __init__(self, model: Any, loss_fn: Any, optimizer: Any, group: Any, own: Any) -> None:
        named = named_layers(model)
        self.layers, self.group, self.own, self.loss_fn = [layer for _, layer in named], group, own, loss_fn
        self.shared = shared_of(model)
        self.device = device_of(self.layers)
        # Each layer is given what any of them takes by name.
        self.modules = [chained([one], named) for one in named] if self.shared else self.layers
        self.whole = chained([(str(place), layer) for place, layer in enumerate(self.layers)], named)
        self.updates = updates_of(self.layers, optimizer)

    def size(self, inputs: tuple[Any, ...], target: Any, repeats: int) -> dict[str, Any]:
        torch = require_torch()
        given, named, targets = self._step_of(inputs, target)
        fused, split, whole = (
            Step(modules, halves, self.loss_fn, self.own, self.device)
            for modules, halves in ((self.modules, False), (self.modules, True), ([self.whole], False))
        )
        for repeat in range(WARM_UP + repeats):
            for step in (fused, split, whole):
                torch.distributed.barrier(self.group)
                step.run(given, named, targets, repeat >= WARM_UP)
                if step is fused:
                    self._update(fused.samples, repeat >= WARM_UP)
                forget_gradients(self.layers)
        for one, other in zip(fused.samples, split.samples):
            one["i"], one["w"] = other["i"], other["w"]
        return {
            "micro_batch_size": inputs[0].shape[0],
            "length": length_of(inputs),
            "layers": fused.samples,
            "whole": {kind: whole.samples[0][kind] for kind in ("f", "b")},
            "outside": [{"actions": len(step.actions), "ns": step.outside} for step in (whole, fused)],
        }

    def handing(self, batches: Sequence[Any], repeats: int) -> list[int]:
        """What the ends of messages took of this rank, in steps that all ranks share, in ns."""
        layers = [(str(place), layer) for place, layer in enumerate(self.layers)]
        found = []
        for inputs, target in batches:
            step = SharedStep(layers, MICRO_BATCHES, self.loss_fn, self.group)
            given, named, targets = self._step_of(inputs, target)
            for repeat in range(WARM_UP + repeats):
                handed = step.run(given, named, targets)
                found += handed if repeat >= WARM_UP else []
                forget_gradients(self.layers)
        return found

    def _step_of(self, inputs: tuple[Any, ...], target: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """What a step is given: inputs of the first stage, those by name, targets."""
        torch = require_torch()
        given, named = parted([torch.cat([one] * MICRO_BATCHES) for one in inputs], self.shared)
        return given, named, torch.cat([target] * MICRO_BATCHES)

    def _update(self, samples: list[Samples], keep: bool) -> None:
        for update, layer in zip(self.updates, samples):
            if update is None:
                continue
            began = time.perf_counter_ns()
            update.step()
            if keep:
                layer["opt"][-1] += time.perf_counter_ns() - began


def device_of(layers: Sequence[Any]) -> Any:
    torch = require_torch()
    parameter = next((one for layer in layers for one in layer.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    if device.type != "cpu":
        raise InputError(
            f"measure() takes the times of the host, and the model is on {device.type}, which computes after the host "
            "has gone on; measure a copy on the CPU, or take costs from a trace of torch.profiler"
        )
    return device


def pooled(found: list[Any]) -> Any:
    """The samples of all ranks: lists of numbers one after the other, all else as rank 0 has it."""
    first = found[0]
    if isinstance(first, dict):
        return {key: pooled([one[key] for one in found]) for key in first}
    if isinstance(first, list) and (not first or isinstance(first[0], int)):
        return [number for one in found for number in one]
    if isinstance(first, list):
        return [pooled([one[place] for one in found]) for place in range(len(first))]
    return first


def length_of(inputs: tuple[Any, ...]) -> int:
    """Of a sample: its tokens, where the first input has them in its second place."""
    return max(1, int(inputs[0].shape[1])) if inputs[0].dim() > 1 else 1


def batches_of(batches: Sequence[Any], names: Sequence[str]) -> list[tuple[tuple[Any, ...], Any]]:
    """Of each size and length one, ascending; the first batch has the usual length."""
    known: dict[tuple[int, int], tuple[tuple[Any, ...], Any]] = {}
    usual = 0
    for place, batch in enumerate(batches):
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise InputError(f"batches: {place} is no pair of inputs and targets")
        inputs = example_of(batch[0], names)
        usual = usual or length_of(inputs)
        known[length_of(inputs), int(inputs[0].shape[0])] = (inputs, batch[1])
    if not known:
        raise InputError("batches: there are none; give pairs of a micro-batch's inputs and targets")
    for length, size in known:
        if (usual, size) not in known:
            raise InputError(
                f"batches: one has {size} samples of length {length}, and none {size} of the first batch's length, {usual}"
            )
    return [known[key] for key in sorted(known)]


def require_lengths(model: Any, batches: Sequence[tuple[tuple[Any, ...], Any]]) -> None:
    """InputError where a captured model's layers do not take samples of a batch's length."""
    if not isinstance(model, Captured) or model.any_length:
        return
    only = length_of(model.example)
    for inputs, _ in batches:
        if length_of(inputs) != only:
            raise InputError(
                f"batches: one has samples of length {length_of(inputs)}, and {model.name} was captured for length {only} "
                "alone (its forward has the length as a number, or torch.export made it one)"
            )


def names_in(model: Any) -> list[str]:
    return model.names if isinstance(model, Captured) else []


def shared_of(model: Any) -> dict[str, int]:
    return model.shared if isinstance(model, Captured) else {}


def message_bytes(layers: Sequence[Any], inputs: tuple[Any, ...], shared: dict[str, int]) -> list[int]:
    torch = require_torch()
    given, named = parted(inputs, shared)
    found = []
    with torch.no_grad():
        for layer in layers[:-1]:
            given = (layer(*given, **by_name(layer, named)),)
            found.append(int(given[0].numel() * given[0].element_size()))
    return found


def measure_here(model: Any, batches: Sequence[Any], loss_fn: Any, options: dict[str, Any], group: Any) -> dict[str, Any]:
    """On every rank of the group at once."""
    dist = require_torch().distributed
    layers = [layer for _, layer in named_layers(model)]
    ranks = dist.get_process_group_ranks(group)
    own = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    try:
        with as_it_was(layers, updates=True):
            meter = Meter(model, loss_fn, options["optimizer"], group, own)
            known = batches_of(batches, names_in(model))
            sizes = [meter.size(inputs, target, options["repeats"]) for inputs, target in known]
            messages = [size for inputs, _ in known for size in message_bytes(layers, inputs, shared_of(model))]
            transfers = []
            if len(ranks) > 1 and messages:
                transfers = measure_transfers(group, messages, options["repeats"])
                if len(ranks) <= len(layers):
                    issues = meter.handing(known, options["repeats"])
                    transfers = [{**one, "issue": issues} for one in transfers]
        found = gathered({"sizes": sizes, "transfers": transfers}, group)
    finally:
        dist.destroy_process_group(own)
    return {
        "model_name": options["name"],
        "cluster": {"schema": "pipewright.cluster/1", "preset": "local-cpu", "devices": max(2, len(ranks))},
        "ranks_measured": len(ranks),
        "repeats": options["repeats"],
        "length": length_of(example_of(batches[0][0], names_in(model))),
        **pooled(found),
    }


def work(rank: int, processes: int, folder: str, arguments: tuple[Any, ...]) -> None:
    """A process of measure(processes=...), with one thread, as torchrun starts them, and cores of its own."""
    torch = require_torch()
    bind(rank, processes)
    torch.set_num_threads(1)
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    samples = measure_here(*arguments, dist.group.WORLD)
    if rank == 0:
        torch.save(samples, f"{folder}/samples")
    dist.barrier()
    dist.destroy_process_group()


def measure_in_processes(processes: int, arguments: tuple[Any, ...]) -> dict[str, Any]:
    torch = require_torch()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (processes, folder, arguments), nprocs=processes)
        return dict(torch.load(os.path.join(folder, "samples"), weights_only=True))


def measure(
    model: Any,
    batches: Sequence[Any],
    loss_fn: Callable[..., Any],
    *,
    repeats: int = 15,
    optimizer: Callable[..., Any] | None = None,
    group: Any = None,
    processes: int | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """A profile.json as a dict: F, B, I and W of each layer, the runtime's own time, and of transfers the host's time
    and the way, each as a median with how the measurements are spread.

    model is what capture() made, or a torch.nn.Sequential or a list of layers; batches are pairs of a micro-batch's
    inputs and targets, one of each size that a plan may choose; besides them, of such a size, samples of other lengths
    than the first batch's (the second dimension), which tell a job what its sample_lengths take. All of it runs in PyTorch's pipeline runtime, each layer
    in a stage of its own: the loss is in the last layer, and what a step does once for a layer's gradients is in its
    update. Ranks that will share a machine's cores are measured together:
    every rank of a job calls it at once (group, else all processes), or processes starts so many, with one thread each
    and bound to cores of its own (bind()); for this the model, the batches and loss_fn have to be picklable. With one rank no transfers are measured. optimizer
    makes an optimizer of a layer's parameters; without it only the update itself costs nothing. Afterwards the model is as before.
    """
    torch = require_torch()
    if not 1 <= repeats <= STEPS_MOST:
        raise InputError(f"repeats: expected 1 to {STEPS_MOST}, got {repeats}")
    if loss_fn is None:
        raise InputError("measure() measures a training: give loss_fn")
    known = name or (model.name if isinstance(model, Captured) else "model")
    arguments = (model, batches, loss_fn, {"repeats": repeats, "optimizer": optimizer, "name": known})
    device_of([layer for _, layer in named_layers(model)])
    require_lengths(model, batches_of(batches, names_in(model)))
    if processes is not None:
        if processes < 1:
            raise InputError(f"processes: expected 1 or more, got {processes}")
        return dict(profile_document(measure_in_processes(processes, arguments)))
    dist = torch.distributed
    if group is None and not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            return dict(profile_document(measure_here(*arguments, dist.group.WORLD)))
        finally:
            dist.destroy_process_group()
    return dict(profile_document(measure_here(*arguments, group_or_default(group))))
