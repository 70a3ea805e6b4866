"""capture(): a PyTorch model as a chain of layers, with what each computes, holds and keeps."""

from __future__ import annotations

import inspect
import json
import math
import os
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._core import model_document
from ..errors import InputError
from .chaining import by_name, parted
from .counting import Counted, counted, tensors_in
from .cutting import Chain, chain_of
from .installed import require_torch
from .places import is_within, quietly, sentence_of
from .unchanged import as_it_was, without_cache

WIDEST = 1 << 20  # of a row in a model.json

Layers = list[tuple[str, Any]]  # names, and modules


@dataclass
class Captured:
    """A model as split(), measure() and a job take it."""

    name: str
    layers: list[tuple[str, Any]]  # names, and modules that share the model's own parameters
    model: dict[str, Any]  # model.json
    example: tuple[Any, ...]
    names: list[str]  # of the inputs, where the example is a dict; else []
    inputs: list[str]  # such as "tokens: int64 [2, 128]"
    outputs: list[str]  # such as "logits: float32 [2, 128, 50257]"; of several the last layer returns a tuple
    tied: list[list[str]]  # names of parameters that are one
    shared: dict[str, int]  # inputs that several layers take, such as a mask, with their places in the example
    remarks: list[str] = field(default_factory=list)  # which modules became one layer, and why
    any_length: bool = True  # the layers take samples of other lengths (the second dimension) than the example's

    @property
    def micro_batch_size(self) -> int:
        """Of the example."""
        return int(self.example[0].shape[0])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict for each layer, such as a pandas.DataFrame takes: name, in, out, weights, operations, kept, held."""
        keys = ("name", "in", "out", "weights", "operations", "kept", "held")
        return [{key: layer.get(key, 0) for key in keys} for layer in self.model["layers"]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model.json that a job names."""
        with open(path, "w") as file:
            json.dump(self.model, file, indent=2)
            file.write("\n")

    def __repr__(self) -> str:
        weights = sum(layer["weights"] for layer in self.model["layers"])
        return f"<Captured {self.name}: {len(self.layers)} layers, {weights:,} weights>"


def described(name: str, tensor: Any) -> str:
    return f"{name}: {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def names_of(model: Any, example: Any) -> list[str]:
    """Of a dict's inputs, in the order in which the model's forward has them; [] for other examples."""
    if not isinstance(example, Mapping):
        return []
    known = list(inspect.signature(model.forward).parameters)
    for name in example:
        if name not in known:
            raise InputError(f"example: forward of {type(model).__name__} has no input {name}; it has {', '.join(known)}")
    return [name for name in known if name in example]


def example_of(example: Any, names: Sequence[str] = ()) -> tuple[Any, ...]:
    """The inputs, those of a dict in the order of the names."""
    torch = require_torch()
    if isinstance(example, Mapping):
        if set(example) != set(names):
            given, wanted = (", ".join(sorted(one)) or "no names" for one in (example, names))
            raise InputError(f"example: inputs named {given}, and those of the captured model are {wanted}")
        example = [example[name] for name in names]
    inputs = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    for place, one in enumerate(inputs):
        if not isinstance(one, torch.Tensor) or one.dim() == 0:
            raise InputError(
                f"example: input {place} is a {type(one).__name__} without a micro-batch; give the tensors that the "
                "model is called with, samples first"
            )
    if len({one.shape[0] for one in inputs}) != 1:
        raise InputError(
            f"example: inputs of {', '.join(str(one.shape[0]) for one in inputs)} samples; give as many in each"
        )
    return inputs


def tied_names(model: Any) -> list[list[str]]:
    owners: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), []).append(name)
    return [names for names in owners.values() if len(names) > 1]


def named_children(model: Any) -> Layers:
    """Of a Sequential: its modules by place, one of them perhaps in several."""
    return list(zip(model._modules, model))


def is_number(size: Any) -> bool:
    """Of a shape of torch.export's: it is the same for all inputs. What is free has a symbol."""
    return str(size).isdigit()


def exported_chain(model: Any, inputs: tuple[Any, ...], names: list[str], together: bool, free: Sequence[int]) -> Chain:
    """By torch.export, for inputs of any size in these dimensions, where the model allows it."""
    torch = require_torch()
    sizes = [{place: torch.export.Dim.AUTO for place in free if place < one.dim()} for one in inputs]
    with quietly():
        if names:
            named = dict(zip(names, inputs))
            program = torch.export.export(model, (), named, dynamic_shapes=dict(zip(names, sizes)), strict=False)
        else:
            program = torch.export.export(model, inputs, dynamic_shapes=tuple(sizes), strict=False)
    try:
        module = program.module(check_guards=False)
    except TypeError:  # before 2.9 there are none
        module = program.module()
    chain = chain_of(module, model, together)
    shapes = [node.meta["val"].shape for node in module.graph.nodes if node.op == "placeholder"]
    if is_number(shapes[0][0]):
        chain.remarks.append(f"the layers are for micro-batches of {shapes[0][0]} samples alone")
    chain.any_length = not any(len(shape) > 1 and is_number(shape[1]) for shape in shapes)
    return chain


def exported_anyhow(model: Any, inputs: tuple[Any, ...], names: list[str], together: bool) -> Chain:
    """For samples of any length too, unless that leaves fewer layers: sizes may pass no cut."""
    try:
        chain = exported_chain(model, inputs, names, together, (0, 1))
    except Exception:  # whatever the tracing of any model may raise; what it is for all lengths alike comes again
        return exported_chain(model, inputs, names, together, (0,))
    if not chain.remarks or not chain.any_length:
        return chain
    fixed = exported_chain(model, inputs, names, together, (0,))
    return fixed if len(fixed.layers) > len(chain.layers) else chain


def called_chain(model: Any, inputs: tuple[Any, ...], names: list[str]) -> Layers:
    """The model's own modules, where each is called with what the one before returned. InputError where they are not."""
    torch = require_torch()
    calls: list[tuple[str, Any, Any, Any]] = []
    handles = [
        child.register_forward_hook(
            lambda module, given, result, name=name: calls.append((name, module, given, result))
        )
        for name, child in model.named_children()
    ]
    try:
        with torch.no_grad():
            passed: Any = inputs
            result = model(**dict(zip(names, inputs))) if names else model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    for name, _, given, returned in calls:
        if len(given) != len(passed) or any(a is not b for a, b in zip(given, passed)):
            raise InputError(f"its module {name} takes something else than what was made before it")
        passed = (returned,)
    if not calls or passed[0] is not result:
        raise InputError("what it returns is not what its last module does")
    return [(name, module) for name, module, _, _ in calls]


def tied_layers(layers: Layers) -> tuple[Layers, list[str]]:
    """Layers from the first to the last that use one parameter become one."""
    nn = require_torch().nn
    first_use: dict[int, int] = {}
    spans: list[tuple[int, int, str]] = []
    for place, (name, layer) in enumerate(layers):
        for key, parameter in layer.named_parameters():
            first = first_use.setdefault(id(parameter), place)
            if first != place:
                spans.append((first, place, f"{name}.{key}"))
    joined: list[tuple[str, Any]] = []
    remarks, place = [], 0
    while place < len(layers):
        end, why = place + 1, ""
        for first, last, tie in sorted(spans):
            if place <= first < end and last >= end:
                end, why = last + 1, tie
        if why:
            inner = layers[place:end]
            name = f"{inner[0][0]} to {inner[-1][0]}"
            joined.append((name, nn.Sequential(*[layer for _, layer in inner])))
            remarks.append(f"{inner[0][0]} to {inner[-1][0]} are one layer: they share {why}")
        else:
            joined.append(layers[place])
        place = end
    return joined, remarks


def chain(model: Any, inputs: tuple[Any, ...], names: list[str], together: bool) -> Chain:
    """InputError where the model is no chain that is known."""
    nn = require_torch().nn
    if isinstance(model, nn.Sequential):
        layers, remarks = named_children(model), []
        return Chain(*(tied_layers(layers) if together else (layers, remarks)))
    try:
        return exported_anyhow(model, inputs, names, together)
    except Exception as error:  # whatever the tracing of any model may raise
        reason = sentence_of(error)
        if is_within(error, type(model).forward):
            raise InputError(f"{type(model).__name__} cannot be captured: {reason}") from error
    try:
        layers = called_chain(model, inputs, names)
    except InputError as error:
        raise InputError(f"{type(model).__name__} cannot be captured: {reason}; and {error}") from None
    except Exception as error:
        raise InputError(f"{type(model).__name__} does not run with this example: {sentence_of(error)}") from error
    layers, remarks = tied_layers(layers) if together else (layers, [])
    return Chain(layers, [f"its own modules are the layers, since torch.export refuses it: {reason}", *remarks])


def count_layers(layers: Layers, inputs: tuple[Any, ...], named: dict[str, Any]) -> list[Counted]:
    found = []
    given = inputs
    for place, (name, layer) in enumerate(layers):
        found.append(counted(layer, given, by_name(layer, named)))
        made = found[-1].output
        if place + 1 < len(layers) and not isinstance(made, require_torch().Tensor):
            raise InputError(f"layer {name} returns a {type(made).__name__}; between layers one tensor passes")
        given = (made,)
    return found


def element_bytes(layers: list[tuple[str, Any]]) -> int:
    for _, layer in layers:
        for parameter in layer.parameters():
            return int(parameter.element_size())
    return 4


def rows_of_sample(passing: list[Any], samples: int) -> int:
    """Tokens, where all that passes between layers has them in its second place; else 1."""
    lengths = {one.shape[1] if one.dim() == 3 else 1 for one in passing}
    rows = lengths.pop() if len(lengths) == 1 else 1
    widest = max((one.numel() // (samples * rows) for one in passing), default=1)
    if widest <= WIDEST:
        return rows
    return math.gcd(*(one.numel() // samples for one in passing))


def document_of(name: str, layers: list[tuple[str, Any]], costs: list[Counted], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """model.json: custom layers, their numbers for each row. A message's width is that of as many numbers of the
    parameters' type as it has bytes for."""
    samples, element = inputs[0].shape[0], element_bytes(layers)
    passing = [cost.output for cost in costs[:-1]]
    rows = rows_of_sample(passing, samples)
    all_rows = samples * rows

    def width(tensors: Any) -> int:
        size = sum(one.numel() * one.element_size() for one in tensors_in(tensors))
        return max(1, math.ceil(size / (element * all_rows)))

    described_layers, given = [], width(inputs)
    for (layer_name, layer), cost in zip(layers, costs):
        described_layers.append(
            {
                "name": layer_name,
                "kind": "custom",
                "type": "torch",
                "in": given,
                "out": width(cost.output),
                "weights": sum(parameter.numel() for parameter in layer.parameters() if parameter.requires_grad),
                "operations": cost.operations / all_rows,
                "kept": math.ceil(cost.kept / all_rows),
                "held": math.ceil(cost.held / all_rows),
            }
        )
        given = described_layers[-1]["out"]
    document = {
        "schema": "pipewright.model/1",
        "name": name,
        "loss": "mse",  # keeps nothing but the output, which is all that is known of the loss
        "sequence": rows,
        "bytes_per_element": element,
        "layers": described_layers,
    }
    return dict(model_document(document))


def capture(model: Any, example: Any, *, name: str | None = None, tied: str = "together") -> Captured:
    """The model as a chain of layers between which one tensor passes, by torch.export, else by its own modules.

    example is a micro-batch: the tensor that the model is called with, a tuple of them, or a dict by the names of forward,
    samples first. A torch.nn.Sequential is taken as it is. Modules past which another tensor goes, a skip connection,
    become one layer (Captured.remarks says which); so do those from the first to the last that use one parameter, unless
    tied is "apart": then a plan may put them into stages of their own, which split() and schedule() keep alike. An input that layers towards
    the end use is theirs by its name (Captured.shared), and is given to step() so on every rank. The layers are modules
    that share the model's parameters. InputError, with the place, for a model that is no such chain.
    """
    torch = require_torch()
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"capture() takes a torch.nn.Module, not a {type(model).__name__}")
    if tied not in ("together", "apart"):
        raise InputError(f'tied: expected "together" or "apart", got "{tied}"')
    names = names_of(model, example)
    inputs = example_of(example, names)
    with as_it_was([model]), without_cache(model):
        known = chain(model, inputs, names, tied == "together")
        first, named = parted(inputs, known.shared)
        try:
            costs = count_layers(known.layers, first, named)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{type(model).__name__} does not run with this example: {sentence_of(error)}") from error
    name = name or type(model).__name__
    outputs = tensors_in(costs[-1].output)
    return Captured(
        name=name,
        layers=known.layers,
        model=document_of(name, known.layers, costs, first),
        example=inputs,
        names=names,
        inputs=[described(names[place] if names else f"input {place}", one) for place, one in enumerate(inputs)],
        outputs=[
            described(known.outputs[place] if known.outputs else f"output {place}", one)
            for place, one in enumerate(outputs)
        ],
        tied=tied_names(model),
        shared=known.shared,
        remarks=known.remarks,
        any_length=known.any_length,
    )
