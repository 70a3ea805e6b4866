"""An exported graph of operators as a chain of layers, each a module of its own with the model's own parameters.

A cut lies where one module ends and another begins, and where one tensor alone passes from what stands before to what
follows: one that a gradient goes back through. What depends on neither inputs nor parameters (a mask, positions) passes
no cut: each layer that needs it computes it. Sizes are read off the layer's own input. An input that layers towards the end
use, such as a mask of what is padding, passes none either: each of these layers takes it, by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

from .installed import require_torch


@dataclass
class Piece:
    """Operators that follow one another and belong to one module of the model."""

    nodes: list[Any]
    unit: str
    is_glue: bool  # of a module that has its layers in containers: between them
    units: list[str] = field(default_factory=list)  # the modules whose operators these are, but for glue


@dataclass
class Chain:
    """A model as layers that follow one another."""

    layers: list[tuple[str, Any]]
    remarks: list[str]  # which modules became one layer, and why
    outputs: list[str] = field(default_factory=list)  # names of what the last layer returns, where the model gives some
    shared: dict[str, int] = field(default_factory=dict)  # inputs that layers take by name, with their places
    any_length: bool = True  # the layers take samples of other lengths than the example's


def is_container(module: Any) -> bool:
    nn = require_torch().nn
    return isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict))


def unit_of(node: Any, modules: Mapping[str, Any]) -> tuple[str, bool]:
    """The module of the model whose operator it is, and whether that is glue between layers.

    Of the modules around an operator it is the outermost that is no container, and that stands in one or has none in
    itself: a block, and not the transformer around it, nor the projection in it.
    """
    found = ""
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        path = path.split("@")[0]
        module = modules.get(path)
        if module is None or is_container(module):
            continue
        found = path
        above = modules.get(path.rpartition(".")[0])
        if path and (is_container(above) or not any(is_container(inner) for inner in module.modules())):
            return path, False
    return found, True


def without_checks(graph: Any) -> None:
    """Takes out the assertions of torch.export that a tensor is of the type it was exported with, and what is computed for
    them alone: of a module that does nothing else (rotary positions) they would make a layer."""
    torch = require_torch()
    check = getattr(torch.ops.aten._assert_tensor_metadata, "default", None)

    def erase(node: Any) -> None:
        sources = node.all_input_nodes
        graph.erase_node(node)
        for source in sources:
            is_pure = source.op == "get_attr" or (source.op == "call_function" and not source.is_impure())
            if is_pure and not source.users:
                erase(source)

    for node in [node for node in graph.nodes if node.op == "call_function" and node.target is check]:
        erase(node)


class Graph:
    """What passes where in an exported program's graph."""

    def __init__(self, graph_module: Any, model: Any) -> None:
        self.torch = require_torch()
        self.module = graph_module
        self.modules = dict(model.named_modules())
        self.nodes = list(graph_module.graph.nodes)
        self.inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.output = next(node for node in self.nodes if node.op == "output")
        self.trained: set[Any] = set()  # depend on a parameter
        self.free: set[Any] = set()  # can be computed anywhere
        self.given: dict[Any, set[Any]] = {}  # can be computed of these inputs alone
        self.shared: set[Any] = set()  # inputs that every layer may take
        for node in self.nodes:
            self._classify(node)

    def attribute(self, node: Any) -> Any:
        owner = self.module
        for word in node.target.split("."):
            owner = getattr(owner, word)
        return owner

    def _classify(self, node: Any) -> None:
        if node.op == "get_attr":
            if getattr(self.attribute(node), "requires_grad", False):
                self.trained.add(node)
            self.free.add(node)
        elif node.op in ("call_function", "call_method", "call_module"):
            if self.is_size(node) or self._is_repeatable(node, ()):
                self.free.add(node)
            elif self._is_repeatable(node, {*self.inputs, *self.given}):
                self.given[node] = {one for source in node.all_input_nodes for one in self.made_of(source)}
            elif any(source in self.trained for source in node.all_input_nodes):
                self.trained.add(node)

    def made_of(self, node: Any) -> set[Any]:
        """The inputs, where it can be computed of them alone."""
        return {node} if node.op == "placeholder" else self.given.get(node, set())

    def _is_repeatable(self, node: Any, besides: Any) -> bool:
        """Depends on no input, besides these, and no chance, and changes nothing."""
        target = node.target
        tags = getattr(target, "tags", ())
        changes = getattr(getattr(target, "_schema", None), "is_mutable", False) or not node.users
        return (
            all(source in besides or source in self.free - self.trained for source in node.all_input_nodes)
            and self.torch.Tag.nondeterministic_seeded not in tags
            and not changes
        )

    def names_of(self, values: list[Any]) -> str:
        """Each with where it comes from, as far as a reader of the model knows it."""
        names = []
        for value in values[:3]:
            stack = list((value.meta.get("nn_module_stack") or {}).values())
            module = stack[-1][0].split("@")[0] if stack else ""
            names.append(f"the input {value.name}" if value.op == "placeholder" else f"{value.name} of {module or 'the model'}")
        return ", ".join(names) + (f" and {len(values) - 3} more" if len(values) > 3 else "")

    def is_size(self, node: Any) -> bool:
        return isinstance(node.meta.get("val"), (int, self.torch.SymInt)) and node.op == "call_function"

    def operators(self) -> list[Any]:
        calls = ("call_function", "call_method", "call_module")
        return [node for node in self.nodes if node.op in calls and node not in self.free]

    def passing(self, before: set[Any], after: set[Any]) -> list[Any]:
        """What was made before a cut, or is an input of the model, and is used after it."""
        wanted: list[Any] = []
        for node in self.nodes:
            if (node not in before and node.op != "placeholder") or node in self.shared:
                continue
            if any(user in after or user is self.output for user in self.users(node)):
                wanted.append(node)
        return wanted

    def users(self, node: Any) -> set[Any]:
        """Through what is computed anew for each of them, but for sizes: they are read off the input."""
        found: set[Any] = set()
        for user in node.users:
            if user not in self.free:
                found.add(user)
        return found

    def writer(self, node: Any, after: set[Any]) -> Any:
        """An operator behind a cut that writes into what passes it: a stage's input cannot be written into."""
        for user in node.users:
            schema = getattr(user.target, "_schema", None)
            if user not in after or schema is None:
                continue
            written = [
                value
                for value, argument in zip(user.args, schema.arguments)
                if argument.alias_info is not None and argument.alias_info.is_write
            ]
            if node in written:
                return user
        return None

    def why_no_cut(self, passing: list[Any], after: set[Any]) -> str:
        """"" where a stage may end."""
        if len(passing) != 1:
            return f"{self.names_of(passing)} pass between them" if passing else "nothing passes between them"
        value = passing[0].meta.get("val")
        is_tensor = isinstance(value, self.torch.Tensor) and value.is_floating_point()
        if not is_tensor or passing[0] not in self.trained:
            return f"no gradient goes back through {passing[0].name}"
        writer = self.writer(passing[0], after)
        if writer is not None:
            return f"{writer.name} writes into {passing[0].name}"
        return "" if sizes_known(self, passing, after) else f"sizes are used that {passing[0].name} does not have"


def pieces_of(graph: Graph) -> list[Piece]:
    """By module, in the order of the graph."""
    pieces: list[Piece] = []
    for node in graph.operators():
        unit, is_glue = unit_of(node, graph.modules)
        if pieces and pieces[-1].unit == unit:
            pieces[-1].nodes.append(node)
        else:
            pieces.append(Piece([node], unit, is_glue, [] if is_glue else [unit]))
    return pieces


def share_inputs(graph: Graph, pieces: list[Piece]) -> list[Piece]:
    """Inputs that pieces of the second half use are given to each that does, with what is computed of them alone; the
    pieces without that. One input at least is the first layer's."""
    late = {node for piece in pieces[(len(pieces) + 1) // 2 :] for node in piece.nodes if node not in graph.given}
    shared = {one for node in late for source in node.all_input_nodes for one in graph.made_of(source)}
    if not shared or len(shared) == len(graph.inputs):
        return pieces
    graph.shared = shared
    graph.free |= {node for node, inputs in graph.given.items() if inputs <= shared}
    return pieces_of(graph)


def join(pieces: list[Piece]) -> Piece:
    units: list[str] = []
    for piece in pieces:
        units += [unit for unit in piece.units if unit not in units]
    is_glue = all(piece.is_glue for piece in pieces)
    return Piece([node for piece in pieces for node in piece.nodes], pieces[0].unit, is_glue, units)


def without_glue(pieces: list[Piece]) -> list[Piece]:
    """What is glue alone belongs to what follows it, at the end to what stands before."""
    found: list[Piece] = []
    for piece in pieces:
        if found and found[-1].is_glue:
            piece = join([found.pop(), piece])
        found.append(piece)
    if len(found) > 1 and found[-1].is_glue:
        last = found.pop()
        found.append(join([found.pop(), last]))
    return found


def joined_pieces(graph: Graph, pieces: list[Piece], tied_together: bool) -> tuple[list[Piece], list[tuple[str, str, str]]]:
    """The pieces between cuts, and why some hold several modules."""
    rest = {node for piece in pieces for node in piece.nodes}
    before: set[Any] = set()
    closed, joined, open_pieces, why, shared = [], [], [], "", ""
    holds = tied_spans(graph, pieces) if tied_together else {}
    for number, piece in enumerate(pieces):
        open_pieces.append(piece)
        before |= set(piece.nodes)
        rest -= set(piece.nodes)
        passing = graph.passing(before, rest)
        tie = next((name for name, (first, last) in holds.items() if first <= number < last), None)
        reason = "tied" if tie else graph.why_no_cut(passing, rest)
        if reason and number + 1 < len(pieces):
            # What can be had otherwise is said, rather than what stands in the way at one place.
            shared = shared or (f"they share {tie}" if tie else "")
            why = why or reason
            continue
        closed.append(join(open_pieces))
        units = closed[-1].units
        if len(units) > 1:
            joined.append((units[0], units[-1], shared or why))
        open_pieces, why, shared = [], "", ""
    return without_glue(closed), joined


def tied_spans(graph: Graph, pieces: list[Piece]) -> dict[str, tuple[int, int]]:
    """Of each parameter that several pieces use: the first of them and the last."""
    spans: dict[int, tuple[int, int]] = {}
    names: dict[int, str] = {}
    for number, piece in enumerate(pieces):
        for node in piece.nodes:
            for source in node.all_input_nodes:
                if source.op != "get_attr" or source not in graph.trained:
                    continue
                key = id(graph.attribute(source))
                names[key] = source.target
                spans[key] = (spans.get(key, (number, number))[0], number)
    return {names[key]: span for key, span in spans.items() if span[0] != span[1]}


def sizes_known(graph: Graph, passing: list[Any], after: set[Any]) -> bool:
    """Whether each size that is used after a cut is one of the tensor that passes it, or computed of such."""

    def known(node: Any) -> bool:
        sources = node.all_input_nodes
        if graph.is_size(node) and any(not graph.is_size(source) for source in sources):
            return sources[0] in graph.shared or same_dimension(node, passing[0]) is not None
        return all(known(source) for source in sources if source in graph.free)

    return all(known(source) for node in after for source in node.all_input_nodes if source in graph.free)


def same_dimension(size: Any, tensor: Any) -> int | None:
    """Where the tensor has this size, by its symbol."""
    wanted = str(size.meta["val"])
    shape = [str(length) for length in tensor.meta["val"].shape]
    return shape.index(wanted) if wanted in shape else None


class Builder:
    """One layer's graph."""

    def __init__(self, graph: Graph, entering: list[Any]) -> None:
        self.graph, self.entering = graph, entering
        self.made = graph.torch.fx.Graph()
        shared = [node for node in graph.inputs if node in graph.shared]
        self.known = {node: self.made.placeholder(str(node.name)) for node in [*entering, *shared]}
        self.shared = shared

    def value(self, node: Any) -> Any:
        if node in self.known:
            return self.known[node]
        torch = self.graph.torch
        if self.graph.is_size(node) and any(not self.graph.is_size(source) for source in node.all_input_nodes):
            source = node.all_input_nodes[0]
            own = source in self.known and source not in self.shared  # a layer takes no mask for its size alone
            place = None if own else same_dimension(node, self.entering[0])
            if place is not None:
                of = self.known[self.entering[0]]
                self.known[node] = self.made.call_function(torch.ops.aten.sym_size.int, (of, place))
                return self.known[node]
        self.known[node] = self.made.node_copy(node, self.value)
        return self.known[node]

    def module(self, nodes: list[Any], result: Any) -> Any:
        for node in nodes:
            self.value(node)
        self.made.output(result(self.value))
        takes = [node for node in self.shared if self.known[node].users]
        for node in self.shared:
            if node not in takes:
                self.made.erase_node(self.known[node])
        self.made.lint()
        module = self.graph.torch.fx.GraphModule(self.graph.module, self.made)
        if takes:
            module.pipewright_takes = tuple(str(node.name) for node in takes)
        return module


def returned(graph: Graph) -> Any:
    """The nodes that the model returns, in the shape in which it does."""
    nodes = list(graph.output.args[0])
    spec = getattr(getattr(graph.module.graph._codegen, "pytree_info", None), "out_spec", None)
    if spec is None:
        return nodes[0] if len(nodes) == 1 else tuple(nodes)
    return graph.torch.utils._pytree.tree_unflatten(nodes, spec)


def outputs(graph: Graph, value: Any) -> Any:
    """What the model returns as a stage of PyTorch's can: a tensor, or a tuple of them in place of a dict and the like."""
    flat = [value(node) for node in graph.output.args[0]]
    whole = returned(graph)
    if len(flat) == 1 and not isinstance(whole, (tuple, list)):
        return flat[0]
    return tuple(flat)


def output_names(graph: Graph) -> list[str]:
    """The keys, where the model returns a dict of tensors, as those of transformers do; else []."""
    whole = returned(graph)
    keys = [str(key) for key in whole] if isinstance(whole, Mapping) else []
    return keys if len(keys) == len(graph.output.args[0]) else []


def chain_of(graph_module: Any, model: Any, tied_together: bool) -> Chain:
    """The layers of an exported program's module, which share the model's parameters and buffers."""
    without_checks(graph_module.graph)
    graph = Graph(graph_module, model)
    pieces, joined = joined_pieces(graph, share_inputs(graph, pieces_of(graph)), tied_together)
    layers: list[tuple[str, Any]] = []
    entering = [node for node in graph.inputs if node not in graph.shared]
    done: set[Any] = set()
    rest = {node for piece in pieces for node in piece.nodes}
    for number, piece in enumerate(pieces):
        done |= set(piece.nodes)
        rest -= set(piece.nodes)
        builder = Builder(graph, entering)
        if number + 1 == len(pieces):
            module = builder.module(piece.nodes, lambda value: outputs(graph, value))
        else:
            leaving = graph.passing(done, rest)
            module = builder.module(piece.nodes, lambda value, made=leaving[0]: value(made))
            entering = leaving
        units = piece.units or ["model"]
        name = units[0] if len(units) == 1 else f"{units[0]} to {units[-1]}"
        layers.append((name, module))
    shared = {str(node.name): place for place, node in enumerate(graph.inputs) if node in graph.shared}
    remarks = [f"{first} to {last} are one layer: {why}" for first, last, why in joined]
    return Chain(layers, remarks, output_names(graph), shared)
