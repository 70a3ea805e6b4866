"""Operator graphs completed by PaddlePaddle 3.3's own Completer and by `pipewright spmd complete`: the
example graphs, and random ones. Compared are the mesh and dims_mapping of every tensor and the mesh and
implementation of every operator. A difference is allowed where reason() says why. Exit status 77 (skipped)
where PaddlePaddle is missing."""

import collections
import copy
import json
import math
import os
import random
import subprocess
import sys
import tempfile

SKIPPED = 77
MESHES = ([2], [4], [2, 2], [2, 3], [2, 4])
UNARY = ("relu", "gelu", "silu", "tanh", "scale", "cast", "assign", "exp", "sigmoid", "square", "sqrt")
BINARY = ("add", "multiply", "subtract", "maximum", "minimum", "divide")
EXAMPLES = ("graph-mlp", "graph-transformer", "graph-moe", "graph-pipeline")


class GraphDraw:
    """A random graph in which a few tensors are annotated."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        shape = self.random.choice(MESHES)
        names = [f"m{dim}" for dim in range(len(shape))]
        ranks = list(range(math.prod(shape)))
        self.sizes = shape
        self.graph = {
            "schema": "pipewright.graph/1",
            "meshes": {"devices": {"shape": shape, "dim_names": names, "ranks": ranks}},
            "tensors": {},
            "operators": [],
        }

    def size(self):
        return self.random.choice((4, 8, 12, 24, 48))

    def tensor(self, shape, type="float32"):
        name = f"t{len(self.graph['tensors'])}"
        self.graph["tensors"][name] = {"shape": shape, "type": type}
        return name

    def shape(self, name):
        return self.graph["tensors"][name]["shape"]

    def operator(self, rule, inputs, shapes, attributes=()):
        outputs = [self.tensor(shape) for shape in shapes]
        one = {"name": f"o{len(self.graph['operators'])}", "rule": rule, "inputs": inputs, "outputs": outputs}
        if attributes:
            one["attributes"] = list(attributes)
        self.graph["operators"].append(one)
        return outputs[0]

    def taken(self):
        return [name for one in self.graph["operators"] for name in one["inputs"]]

    def grown(self):
        """Some tensor to go on from: mostly the last."""
        floats = [name for name, one in self.graph["tensors"].items() if one["type"] == "float32"]
        made = [name for one in self.graph["operators"] for name in one["outputs"]]
        if not made:
            return self.random.choice(floats)
        return made[-1] if self.random.random() < 0.7 else self.random.choice(made)

    def add_operator(self):
        self.random.choice(OPERATORS)(self, self.grown())

    def annotate(self):
        made = {name for one in self.graph["operators"] for name in one["outputs"]}
        given = [name for name in self.graph["tensors"] if name not in made]
        for name in self.random.sample(given, min(len(given), self.random.randint(1, 3))):
            self.annotate_tensor(name)
        if self.random.random() < 0.2:
            self.annotate_tensor(self.random.choice(sorted(made)))

    def annotate_tensor(self, name):
        """Each mesh dimension divides one dimension, evenly, or none; a dimension at most once."""
        mapping = [-1] * len(self.shape(name))
        for dim, parts in enumerate(self.sizes):
            free = [
                axis for axis, size in enumerate(self.shape(name)) if mapping[axis] == -1 and size % parts == 0
            ]
            if free and self.random.random() < 0.7:
                mapping[self.random.choice(free)] = dim
        self.graph["tensors"][name]["annotation"] = {"mesh": "devices", "dims_mapping": mapping}


# Each of these goes on from a tensor.


def matmul(draw, x):
    shape = draw.shape(x)
    if len(shape) < 2:
        return
    n = draw.size()
    weight = draw.tensor([n, shape[-1]] if draw.random.random() < 0.3 else [shape[-1], n])
    transposed = draw.shape(weight)[0] == n and (n != shape[-1] or draw.random.random() < 0.5)
    draw.operator("matmul", [x, weight], [shape[:-1] + [n]], [False, transposed])


def unary(draw, x):
    rule = draw.random.choice(UNARY)
    draw.operator(rule, [x], [draw.shape(x)])


def binary(draw, x):
    """With a tensor of the same shape that there is, or with a bias."""
    shape = draw.shape(x)
    same = [
        name
        for name, one in draw.graph["tensors"].items()
        if one["shape"] == shape and name != x and one["type"] == "float32"
    ]
    other = draw.random.choice(same) if same and draw.random.random() < 0.6 else draw.tensor(shape[-1:])
    if not shape:
        return
    draw.operator(draw.random.choice(BINARY), [x, other], [shape])


def softmax(draw, x):
    if draw.shape(x):
        draw.operator("softmax", [x], [draw.shape(x)], [-1])


def layer_norm(draw, x):
    shape = draw.shape(x)
    if len(shape) >= 2:
        parameters = [draw.tensor(shape[-1:]), draw.tensor(shape[-1:])]
        draw.operator("layer_norm", [x, *parameters], [shape], [1e-5, len(shape) - 1])


def reduction(draw, x):
    shape = draw.shape(x)
    if len(shape) < 2:
        return
    axis, keep = draw.random.randrange(len(shape)), draw.random.random() < 0.5
    left = [1 if at == axis else size for at, size in enumerate(shape) if keep or at != axis]
    draw.operator(draw.random.choice(("sum", "mean", "max")), [x], [left], [[axis], keep])


def transpose(draw, x):
    shape = draw.shape(x)
    order = draw.random.sample(range(len(shape)), len(shape))
    if len(shape) >= 2:
        draw.operator("transpose", [x], [[shape[axis] for axis in order]], [order])


def reshape(draw, x):
    shape = draw.shape(x)
    if len(shape) == 3:
        to = [shape[0] * shape[1], shape[2]] if draw.random.random() < 0.5 else [shape[0], shape[1] * shape[2]]
    elif len(shape) == 2 and shape[1] % 4 == 0:
        to = [shape[0], 4, shape[1] // 4]
    else:
        return
    draw.operator("reshape", [x], [to], [to])


def sliced(draw, x):
    shape = draw.shape(x)
    if not shape:
        return
    axis = draw.random.randrange(len(shape))
    if shape[axis] % 2 == 0:
        half = [size // 2 if at == axis else size for at, size in enumerate(shape)]
        draw.operator("slice", [x], [half], [[axis], [0], [half[axis]], [1], []])


def concat(draw, x):
    shape = draw.shape(x)
    if shape:
        axis = draw.random.randrange(len(shape))
        other = draw.tensor(shape)
        longer = [2 * size if at == axis else size for at, size in enumerate(shape)]
        draw.operator("concat", [[x, other]], [longer], [axis])


def where(draw, x):
    shape = draw.shape(x)
    if shape:
        draw.operator("where", [draw.tensor(shape, "bool"), x, draw.tensor(shape)], [shape])


OPERATORS = (
    *(matmul, matmul, matmul, unary, unary, binary, binary, softmax, softmax, layer_norm, layer_norm),
    *(reduction, transpose, reshape, sliced, concat, where),
)


def drawn_graph(seed):
    draw = GraphDraw(seed)
    if draw.random.random() < 0.3:
        ids = draw.tensor([draw.size() for _ in range(draw.random.randint(1, 2))], "int64")
        table = draw.tensor([draw.size(), draw.size()])
        draw.operator("embedding", [ids, table], [draw.shape(ids) + draw.shape(table)[-1:]])
    else:
        draw.tensor([draw.size() for _ in range(draw.random.randint(2, 3))])
    for _ in range(draw.random.randint(2, 10)):
        draw.add_operator()
    if not draw.graph["operators"]:
        return drawn_graph(seed + 1_000_000)
    draw.annotate()
    return draw.graph


def at(attributes, place, otherwise):
    return attributes[place] if len(attributes) > place else otherwise


def names_in(arguments):
    """The tensors of some arguments, those of lists one by one."""
    for one in arguments:
        yield from one if isinstance(one, list) else [one] if one else []


def reducing(name):
    return (
        name,
        ("X",),
        ("Out",),
        lambda a: {"dim": at(a, 0, []), "keep_dim": at(a, 1, False), "reduce_all": not at(a, 0, [])},
    )


def pointwise(name):
    return (name, ("X",), ("Out",), lambda a: {})


def pairwise(name):
    return (name, ("X", "Y"), ("Out",), lambda a: {"axis": -1})


# By rule: Paddle's operator, the names of its inputs and outputs in the rule's order, its attributes.
AS_PADDLE = {
    "add": pairwise("elementwise_add"),
    "assign": pointwise("assign"),
    "concat": ("concat", ("X",), ("Out",), lambda a: {"axis": at(a, 0, 0)}),
    "cast": ("cast", ("X",), ("Out",), lambda a: {"in_dtype": 5, "out_dtype": 5}),
    "cross_entropy_with_softmax": (
        "softmax_with_cross_entropy",
        ("Logits", "Label"),
        ("Softmax", "Loss"),
        lambda a: {"soft_label": False, "axis": -1, "ignore_index": -100, "numeric_stable_mode": True},
    ),
    "divide": pairwise("elementwise_div"),
    "embedding": ("lookup_table_v2", ("Ids", "W"), ("Out",), lambda a: {"padding_idx": -1}),
    "exp": pointwise("exp"),
    "flash_attention": (
        "flash_attn",
        ("q", "k", "v", "fixed_seed_offset", "attn_mask"),
        ("out", "softmax", "softmax_lse", "seed_offset"),
        lambda a: {"dropout": 0.0, "causal": True},
    ),
    "gelu": pointwise("gelu"),
    "layer_norm": (
        "layer_norm",
        ("X", "Scale", "Bias"),
        ("Y", "Mean", "Variance"),
        lambda a: {"epsilon": a[0], "begin_norm_axis": a[1]},
    ),
    "matmul": (
        "matmul_v2",
        ("X", "Y"),
        ("Out",),
        lambda a: {"trans_x": at(a, 0, False), "trans_y": at(a, 1, False)},
    ),
    "max": reducing("reduce_max"),
    "maximum": pairwise("elementwise_max"),
    "minimum": pairwise("elementwise_min"),
    "mean": reducing("reduce_mean"),
    "multiply": pairwise("elementwise_mul"),
    "relu": pointwise("relu"),
    "reshape": ("reshape2", ("X",), ("Out", "XShape"), lambda a: {"shape": a[0]}),
    "scale": ("scale", ("X",), ("Out",), lambda a: {"scale": 2.0, "bias": 0.0, "bias_after_scale": True}),
    "sigmoid": pointwise("sigmoid"),
    "silu": pointwise("silu"),
    "slice": (
        "slice",
        ("Input",),
        ("Out",),
        lambda a: {"axes": a[0], "starts": a[1], "ends": a[2], "infer_flags": a[3], "decrease_axis": a[4]},
    ),
    "softmax": ("softmax", ("X",), ("Out",), lambda a: {"axis": at(a, 0, -1)}),
    "sqrt": pointwise("sqrt"),
    "square": pointwise("square"),
    "subtract": pairwise("elementwise_sub"),
    "sum": reducing("reduce_sum"),
    "tanh": pointwise("tanh"),
    "transpose": ("transpose2", ("X",), ("Out", "XShape"), lambda a: {"axis": a[0]}),
    "where": ("where", ("Condition", "X", "Y"), ("Out",), lambda a: {}),
}


class Paddle:
    """PaddlePaddle's completion of static programs."""

    def __init__(self):
        import paddle
        from paddle.distributed.auto_parallel.static import completion, dist_context, dist_tensor
        from paddle.distributed.fleet import auto

        paddle.enable_static()
        # Its kernel is for GPUs alone, and shapes are inferred by kernels; the graph has them.
        paddle.base.framework.Operator.OP_WITHOUT_KERNEL_SET.add("flash_attn")
        self.paddle, self.auto = paddle, auto
        self.completion, self.context, self.tensor = completion, dist_context, dist_tensor

    def mesh(self, fields):
        nested = fields["ranks"]
        for size in reversed(fields["shape"][1:]):
            nested = [nested[first : first + size] for first in range(0, len(nested), size)]
        return self.auto.ProcessMesh(mesh=nested, dim_names=fields["dim_names"])

    def program(self, graph):
        main, startup = self.paddle.static.Program(), self.paddle.static.Program()
        with self.paddle.static.program_guard(main, startup):
            block = main.global_block()
            variables = {
                name: block.create_var(name=name, shape=one["shape"], dtype=one["type"])
                for name, one in graph["tensors"].items()
            }
            for one in graph["operators"]:
                kind, takes, makes, attributes = AS_PADDLE[one["rule"]]
                inputs = {
                    slot: [variables[name] for name in names_in([given])]
                    for slot, given in zip(takes, one["inputs"])
                    if given
                }
                outputs = {slot: [variables[name]] for slot, name in zip(makes, one["outputs"]) if name}
                for slot in makes:
                    if slot not in outputs:
                        kept = block.create_var(name=f"{one['name']}.{slot}", dtype="float32", shape=[1])
                        outputs[slot] = [kept]
                block.append_op(type=kind, inputs=inputs, outputs=outputs, attrs=attributes(one.get("attributes", [])))
        return main, startup, variables

    def complete(self, graph):
        main, startup, variables = self.program(graph)
        meshes = {name: self.mesh(fields) for name, fields in graph["meshes"].items()}
        context = self.context.DistributedContext(main, startup)
        for name, one in graph["tensors"].items():
            annotation = one.get("annotation")
            if annotation:
                self.annotate(context, variables[name], annotation, meshes)
        self.completion.Completer(context).complete_forward_annotation(main)
        names = {tuple(mesh.process_ids): name for name, mesh in meshes.items()}
        tensors = {}
        for name in graph["tensors"]:
            attribute = context.get_tensor_dist_attr_for_program(variables[name])
            tensors[name] = (names[tuple(attribute.process_mesh.process_ids)], list(attribute.dims_mapping))
        operators = {}
        for one, operator in zip(graph["operators"], main.global_block().ops):
            attribute = context.get_op_dist_attr_for_program(operator)
            mesh = names[tuple(attribute.process_mesh.process_ids)]
            takes = [
                list(attribute.get_input_dims_mapping(name)) if name else None
                for given in one["inputs"]
                for name in (given if isinstance(given, list) else [given])
            ]
            operators[one["name"]] = (mesh, attribute.impl_type, attribute.impl_idx, takes)
        return tensors, operators

    def annotate(self, context, variable, annotation, meshes):
        tensor = self.tensor.DistributedTensor(variable)
        tensor.dist_attr.process_mesh = meshes[annotation["mesh"]]
        tensor.dist_attr.mark_annotated("process_mesh")
        mapping = mapping_of(annotation, {"shape": variable.shape})
        if mapping is not None:
            tensor.dist_attr.dims_mapping = mapping
            tensor.dist_attr.mark_annotated("dims_mapping")
        context.add_dist_tensor_for_program(tensor)
        context.add_process_mesh(meshes[annotation["mesh"]])


def mapping_of(annotation, tensor):
    if "placements" in annotation:
        mapping = [-1] * len(tensor["shape"])
        for dim, placement in enumerate(annotation["placements"]):
            if placement != "R":
                mapping[int(placement[1:])] = dim
        return mapping
    return annotation.get("dims_mapping")


def ours(command, graph):
    """Tensors and operators as Paddle.complete() has them, and the bytes of all reshards; or the complaint."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.json")
        with open(path, "w") as file:
            json.dump(graph, file)
        call = [command, "spmd", "complete", path, "--json", "-q"]
        done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    result = json.loads(done.stdout)
    tensors = {
        name: (one["annotation"]["mesh"], one["annotation"]["dims_mapping"])
        for name, one in result["graph"]["tensors"].items()
    }
    operators = {}
    for one in result["graph"]["operators"]:
        done = one["annotation"]
        takes = [layout and layout["dims_mapping"] for layout in done["inputs"]]
        operators[one["name"]] = (done["process_mesh"], done["impl_type"], done["impl_idx"], takes)
    return (tensors, operators, result["reshard_bytes"]), None


def bytes_as_paddle_has_it(command, graph, tensors):
    """Of our reshards if every tensor lies as Paddle has it; None where its operators do not take them so."""
    annotated = copy.deepcopy(graph)
    for name, (mesh, mapping) in tensors.items():
        annotated["tensors"][name]["annotation"] = {"mesh": mesh, "dims_mapping": mapping}
    done, _ = ours(command, annotated)
    return done[2] if done else None


def covers(one, other):
    """Whether each dimension is divided by what divides the other's, or by that and more."""
    first = [dims[0] if isinstance(dims, list) else dims for dims in one[1]]
    return one[0] == other[0] and all(b in (-1, a) for a, b in zip(first, other[1]))


def works_along_first(graph):
    """Whether an operator without a rule in Paddle's completion does something of its own along dimension 0,
    which its default implementation takes for a batch."""
    for one in graph["operators"]:
        rank = len(graph["tensors"][next(names_in(one["inputs"]))]["shape"])
        if one["rule"] in ("max", "mean", "slice") and 0 in one["attributes"][0]:
            return True
        if one["rule"] == "softmax" and one["attributes"][0] % rank == 0:
            return True
    return False


def takes_back_product(tensors, graph):
    """Whether a product's rows and columns are both divided, for which Paddle has no implementation."""
    weights = [one["inputs"][1] for one in graph["operators"] if one["rule"] == "matmul"]
    return any(-1 not in tensors[weight][1][-2:] for weight in weights)


class Comparison:
    """Counts why answers differ; each of these is in docs/distributed-tensors.md."""

    def __init__(self, command, paddle):
        self.command, self.paddle = command, paddle
        self.graphs, self.operators = collections.Counter(), collections.Counter()
        self.unexplained = []

    def compare(self, name, graph):
        mine, complaint = ours(self.command, graph)
        try:
            tensors, operators = self.paddle.complete(graph)
        except Exception as error:  # of whatever type: it refuses
            if mine is None or "is sharded by same mesh dimension" in str(error):
                kind = "both refuse" if mine is None else "Paddle refuses what it has brought together"
            else:
                kind = self.differs(name, graph, f"Paddle: {error}")
            self.graphs[kind] += 1
            return
        if mine is None:
            refused = "contradict each other" in complaint
            kind = "refused here: annotations contradict each other" if refused else None
            self.graphs[kind or self.differs(name, graph, complaint)] += 1
            return
        self.graphs[self.reason(name, graph, mine, tensors)] += 1
        for one in graph["operators"]:
            around = set(names_in(one["inputs"] + one["outputs"]))
            if any(mine[0][tensor] != tensors[tensor] for tensor in around):
                continue
            here, there = mine[1][one["name"]], operators[one["name"]]
            kind = "agree" if here == there else "compute with other layouts" if here[3] != there[3] else None
            self.operators[kind or self.differs(name, graph, f"{one['name']}: {here}, Paddle {there}")] += 1

    def reason(self, name, graph, mine, tensors):
        annotated = {
            tensor for tensor, one in graph["tensors"].items() if mapping_of(one.get("annotation", {}), one)
        }
        differing = [tensor for tensor in tensors if mine[0][tensor] != tensors[tensor]]
        if annotated.intersection(differing):
            self.graphs["(Paddle overwrites an annotation)"] += 1
        differing = [tensor for tensor in differing if tensor not in annotated]
        if not differing:
            return "agree"
        theirs = bytes_as_paddle_has_it(self.command, graph, tensors)
        if all(covers(mine[0][tensor], tensors[tensor]) for tensor in differing):
            how = "more" if theirs is None or mine[2] > theirs else "fewer" if mine[2] < theirs else "as many"
            return f"divided further here, {how} bytes"
        if theirs is None or mine[2] <= theirs:
            return f"otherwise, and {'as many' if mine[2] == theirs else 'fewer'} bytes here"
        if works_along_first(graph):
            return "Paddle takes dimension 0 for a batch"
        if takes_back_product(mine[0], graph):
            return "Paddle takes back a product of divided rows and columns"
        rows = [f"{tensor}: {mine[0][tensor]}, Paddle {tensors[tensor]}" for tensor in differing]
        return self.differs(name, graph, f"{mine[2]} B, Paddle {theirs} B: " + "; ".join(rows))

    def differs(self, name, graph, what):
        self.unexplained.append(name)
        print(f"{name}: {json.dumps(graph)}\n  {what}")
        return "otherwise"


def main():
    command, examples = sys.argv[1], sys.argv[2]
    count = int(os.environ.get("PIPEWRIGHT_COMPLETION_GRAPHS", 50))
    # Static programs, and the rule that divides the classes of a loss.
    os.environ.update(FLAGS_enable_pir_api="0", PARALLEL_CROSS_ENTROPY="true")
    os.environ.setdefault("GLOG_minloglevel", "3")
    try:
        paddle = Paddle()
    except ImportError as error:
        print(f"skipped: PaddlePaddle is not installed here ({error})")
        return SKIPPED
    comparison = Comparison(command, paddle)
    for name in EXAMPLES:
        with open(os.path.join(examples, name + ".json")) as file:
            comparison.compare(name, json.load(file))
    for seed in range(count):
        comparison.compare(f"r{seed}", drawn_graph(seed))
    for kind, times in sorted(comparison.graphs.items()):
        print(f"{times:5} graphs: {kind}")
    for kind, times in sorted(comparison.operators.items()):
        print(f"{times:5} operators between tensors that agree: {kind}")
    return 0 if len(comparison.unexplained) * 50 <= count else 1


if __name__ == "__main__":
    sys.exit(main())
