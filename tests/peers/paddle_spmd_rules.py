"""New random cases of SPMD rules, asked of PaddlePaddle 3.3's own rules and of `pipewright spmd infer`:
every operator of the table below, shapes and attributes drawn anew, meshes of one to three
dimensions. A difference is allowed where reason() says why. Exit status 77 (skipped) where
PaddlePaddle is missing."""

import collections
import json
import os
import random
import subprocess
import sys
import tempfile

SKIPPED = 77
MESHES = ([2], [4], [2, 2], [2, 3], [2, 4], [4, 2], [2, 2, 2])


class Draw:
    """Random tensors on one mesh."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.mesh = self.random.choice(MESHES)

    def shape(self, least=1, most=4):
        return [self.size() for _ in range(self.random.randint(least, most))]

    def size(self):
        return self.random.choice((4, 6, 8, 12, 16, 24, 48))

    def tensor(self, shape):
        """Each mesh dimension divides one of the dimensions, or none; a dimension at most once."""
        mapping = [-1] * len(shape)
        for dim in self.random.sample(range(len(self.mesh)), len(self.mesh)):
            free = [axis for axis, at in enumerate(mapping) if at == -1]
            if free and self.random.random() < 0.6:
                mapping[self.random.choice(free)] = dim
        return {"shape": shape, "dims_mapping": mapping}

    def tensors(self, *shapes):
        return [self.tensor(shape) for shape in shapes]

    def flag(self):
        return self.random.random() < 0.5

    def axis(self, rank):
        return self.random.randrange(-rank, rank)

    def axes(self, rank):
        chosen = self.random.sample(range(rank), self.random.randint(1, rank))
        return [axis - rank if self.flag() else axis for axis in sorted(chosen)]


# Each of these returns (inputs, outputs, attributes); a list among them is a list of tensors.


def unary(draw):
    shape = draw.shape()
    return [shape], [shape], []


def binary(draw):
    shape = draw.shape(2, 4)
    other = [1 if draw.random.random() < 0.15 else size for size in shape]
    other = other[draw.random.randrange(len(other)) :]
    pair = [shape, other] if draw.flag() else [other, shape]
    return pair, [shape], []


def where(draw):
    """Paddle 3.3.1 takes no more dimensions in x than in y, and in no more than in the condition."""
    shape = draw.shape(2, 4)
    other = [1 if draw.random.random() < 0.15 else size for size in shape]
    return [shape, shape, other], [shape], []


def add_n(draw):
    shape = draw.shape()
    return [[shape] * draw.random.randint(2, 3)], [shape], []


def without(shape, axes, keep):
    axes = {axis % len(shape) for axis in axes}
    return [1 if axis in axes else n for axis, n in enumerate(shape) if keep or axis not in axes]


def reduction(draw, *more):
    shape = draw.shape()
    axes, keep = draw.axes(len(shape)), draw.flag()
    return [shape], [without(shape, axes, keep)], [axes, keep, *more]


def logsumexp(draw):
    return reduction(draw, False)


def p_norm(draw):
    shape, keep = draw.shape(), draw.flag()
    axis = draw.axis(len(shape))
    return [shape], [without(shape, [axis], keep)], [2.0, axis, 1e-12, keep, False]


def argmax(draw):
    shape, keep = draw.shape(), draw.flag()
    axis = draw.axis(len(shape))
    return [shape], [without(shape, [axis], keep)], [axis, keep, False]


def topk(draw):
    shape, k = draw.shape(), draw.random.randint(1, 4)
    axis = draw.axis(len(shape))
    first = [k if at == axis % len(shape) else size for at, size in enumerate(shape)]
    return [shape], [first, first], [k, axis, draw.flag(), draw.flag()]


def along_axis(draw):
    shape = draw.shape()
    return [shape], [shape], [draw.axis(len(shape))]


def cumsum(draw):
    """Paddle 3.3.1 is killed by a negative axis here, backward, and in gather."""
    shape = draw.shape()
    return [shape], [shape], [draw.random.randrange(len(shape)), False, False, False]


def matmul(draw):
    batch, (m, k, n) = draw.shape(0, 2), draw.shape(3, 3)
    x, y = (batch, []) if draw.flag() else (batch, batch)
    trans_x, trans_y = draw.flag(), draw.flag()
    return (
        [x + ([k, m] if trans_x else [m, k]), y + ([n, k] if trans_y else [k, n])],
        [batch + [m, n]],
        [trans_x, trans_y],
    )


def weight_gradient(draw):
    rows, (k, n) = draw.shape(2, 2), draw.shape(2, 2)
    return [rows + [k], rows + [n], [], []], None, [0, True]


def conv2d(draw):
    n, c, o = draw.shape(3, 3)
    return [[n, c, 8, 8], [o, c, 3, 3]], [[n, o, 6, 6]], []


def layer_norm(draw):
    shape = draw.shape(2, 4)
    begin = draw.random.randrange(1, len(shape))
    normed = 1
    for size in shape[begin:]:
        normed *= size
    return [shape, [normed], [normed]], [shape, shape[:begin], shape[:begin]], [1e-5, begin]


def rms_norm(draw):
    shape = draw.shape(2, 4)
    return [shape, [shape[-1]]], [shape, shape[:-1]], [1e-5]


def embedding(draw):
    ids, (rows, width) = draw.shape(1, 3), draw.shape(2, 2)
    return [ids, [rows, width]], [ids + [width]], [-1, draw.random.random() < 0.2]


def c_embedding(draw):
    ids, (rows, width) = draw.shape(1, 3), draw.shape(2, 2)
    return [[rows, width], ids], [ids + [width]], [0, -1]


def concat(draw):
    shape = draw.shape()
    axis = draw.axis(len(shape))
    parts = [list(shape) for _ in range(draw.random.randint(2, 3))]
    for part in parts:
        part[axis] = draw.size()
    total = list(shape)
    total[axis] = sum(part[axis] for part in parts)
    return [parts], [total], [axis]


def stack(draw):
    shape, count = draw.shape(1, 3), draw.random.randint(2, 3)
    axis = draw.random.randrange(len(shape) + 1)
    return [[shape] * count], [shape[:axis] + [count] + shape[axis:]], [axis]


def split(draw):
    shape = draw.shape()
    axis = draw.axis(len(shape))
    first = draw.random.randrange(1, shape[axis])
    sections = [first, shape[axis] - first]
    parts = [list(shape) for _ in sections]
    for part, size in zip(parts, sections):
        part[axis] = size
    return [shape], [parts], [sections, axis]


def split_with_num(draw):
    shape = draw.shape()
    axis = draw.axis(len(shape))
    part = list(shape)
    part[axis] //= 2
    return [shape], [[part, part]], [2, axis]


def unbind(draw):
    shape = draw.shape(2, 4)
    axis = draw.axis(len(shape))
    shape[axis] = draw.random.randint(2, 3)
    return [shape], [[without(shape, [axis], False)] * shape[axis]], [axis]


def sliced(draw):
    shape = draw.shape()
    axes = [axis % len(shape) for axis in draw.axes(len(shape))]
    part = [size // 2 if axis in axes else size for axis, size in enumerate(shape)]
    ends = [shape[axis] // 2 for axis in axes]
    return [shape], [part], [axes, [0] * len(axes), ends, [1] * len(axes), []]


def pad(draw):
    shape = draw.shape()
    margins = [draw.random.choice((0, 0, 1)) for _ in range(2 * len(shape))]
    grown = [n + margins[2 * axis] + margins[2 * axis + 1] for axis, n in enumerate(shape)]
    return [[shape]], [[grown]], [margins, 0]


def tile(draw):
    shape = draw.shape()
    times = [draw.random.choice((1, 1, 2)) for _ in range(len(shape) + draw.random.randint(0, 1))]
    long = [1] * (len(times) - len(shape)) + shape
    return [shape], [[n * by for n, by in zip(long, times)]], [times]


def transpose(draw):
    shape = draw.shape()
    order = draw.random.sample(range(len(shape)), len(shape))
    return [shape], [[shape[axis] for axis in order]], [order]


def triangle(draw, *attributes):
    shape = draw.shape(2, 4)
    return [shape], [shape], list(attributes)


def reshape(draw):
    shape = draw.shape(2, 4)
    at = draw.random.randrange(len(shape) - 1)
    to = shape[:at] + [shape[at] * shape[at + 1]] + shape[at + 2 :]
    return ([shape], [to], [to]) if draw.flag() else ([to], [shape], [shape])


def flatten(draw):
    shape = draw.shape(2, 4)
    first = draw.random.randrange(len(shape) - 1)
    last = draw.random.randrange(first, len(shape))
    product = 1
    for size in shape[first : last + 1]:
        product *= size
    return [shape], [shape[:first] + [product] + shape[last + 1 :]], [first, last]


def squeeze(draw):
    shape = draw.shape(1, 3)
    axis = draw.random.randrange(len(shape) + 1)
    return [shape[:axis] + [1] + shape[axis:]], [shape], [[axis]]


def unsqueeze(draw):
    inputs, outputs, attributes = squeeze(draw)
    return outputs, inputs, attributes


def gather(draw):
    shape, (index,) = draw.shape(), draw.shape(1, 1)
    axis = draw.random.randrange(len(shape))
    return [shape, [index]], [shape[:axis] + [index] + shape[axis + 1 :]], [axis]


def gather_nd(draw):
    shape, index = draw.shape(1, 3), draw.shape(1, 2)
    coordinates = draw.random.randint(1, len(shape))
    return [shape, index + [coordinates]], [index + shape[coordinates:]], []


def scatter(draw):
    shape, (index,) = draw.shape(2, 3), draw.shape(1, 1)
    return [shape, [index], [index] + shape[1:]], [shape], [True]


def one_hot(draw):
    shape = draw.shape(1, 3)
    return [shape], [shape + [12]], [12]


def nonzero(draw):
    return [draw.shape()], [[8, 8]], []


def cross_entropy(draw):
    shape = draw.shape(2, 4)
    label = shape[:-1] + [1]
    return [shape, label], [shape, label], [False, True, True, -100, -1]


def cross_entropy_of_parts(draw):
    shape = draw.shape(2, 4)
    return [shape, shape[:-1] + [1]], None, [-1, 0, 0, 2]


def cross_entropy_of_labels(draw):
    shape = draw.shape(2, 4)
    return [shape, shape[:-1] + [4], shape[:-1] + [4]], None, [-1, 0, 0, 2]


def attention(draw):
    """As many heads of keys as of queries, or fewer."""
    b, s, t, h, d, e = (draw.size() for _ in range(6))
    kv = h // draw.random.choice((1, 1, 2, 4, h))
    q, k, v, out, lse = [b, s, h, d], [b, t, kv, d], [b, t, kv, e], [b, s, h, e], [b, h, s]
    return [q, k, v, [], []], [out, [], lse, []], [0.0, False, False, False]


def dropout_add(draw):
    shape = draw.shape()
    return [shape, shape], [shape, [2]], []


OPERATORS = {
    "add": binary,
    "add_n": add_n,
    "argmax": argmax,
    "c_embedding": c_embedding,
    "c_softmax_with_cross_entropy": cross_entropy_of_parts,
    "c_softmax_with_multi_label_cross_entropy": cross_entropy_of_labels,
    "clip": unary,
    "concat": concat,
    "conv2d": conv2d,
    "cross_entropy_with_softmax": cross_entropy,
    "cumsum": cumsum,
    "flash_attention": attention,
    "flatten": flatten,
    "fused_dropout_add": dropout_add,
    "fused_linear_param_grad_add": weight_gradient,
    "fused_rms_norm": rms_norm,
    "gather": gather,
    "gather_nd": gather_nd,
    "greater_than": binary,
    "layer_norm": layer_norm,
    "less_than": binary,
    "logsumexp": logsumexp,
    "lookup_table_v2": embedding,
    "matmul": matmul,
    "max": reduction,
    "nonzero": nonzero,
    "one_hot": one_hot,
    "p_norm": p_norm,
    "pad": pad,
    "relu": unary,
    "reshape": reshape,
    "scatter": scatter,
    "scatter_nd_add": scatter,
    "slice": sliced,
    "softmax": along_axis,
    "split": split,
    "split_with_num": split_with_num,
    "squared_l2_norm": reduction,
    "squeeze": squeeze,
    "stack": stack,
    "tile": tile,
    "topk": topk,
    "transpose": transpose,
    "tril_triu": lambda draw: triangle(draw, 0, False),
    "triu": lambda draw: triangle(draw, 0),
    "unbind": unbind,
    "unsqueeze": unsqueeze,
    "where": where,
}
# Their rules answer for any tensors, and are told how many outputs there are.
ANY_TENSORS = ("default_data_parallel", "replicated")
FORWARD_ONLY = ("greater_than", "less_than", "add_n", "topk")


def drawn_case(seed):
    draw = Draw(seed)
    rule = draw.random.choice((*OPERATORS, *ANY_TENSORS))
    direction = draw.random.choice(("forward", "backward"))
    if rule in ANY_TENSORS:
        lists = [draw.tensors(*(draw.shape() for _ in range(draw.random.randint(1, 2)))) for _ in "io"]
        args = lists
    else:
        inputs, outputs, attributes = OPERATORS[rule](draw)
        if outputs is None or rule in FORWARD_ONLY:
            direction = "forward"
        shapes = inputs if direction == "forward" else [*inputs, *outputs]
        args = [
            draw.tensors(*shape) if shape and isinstance(shape[0], list) else draw.tensor(shape)
            for shape in shapes
        ]
        args += [{"attr": value} for value in attributes]
    processes = 1
    for size in draw.mesh:
        processes *= size
    mesh = {"shape": draw.mesh, "process_ids": list(range(processes))}
    return {"id": f"r{seed}", "rule": rule, "direction": direction, "mesh": mesh, "args": args}


class Paddle:
    """PaddlePaddle's own rules."""

    def __init__(self):
        from paddle.base import core
        from paddle.distributed.auto_parallel.static import dist_attribute
        from paddle.distributed.fleet import auto

        self.core, self.attribute, self.auto = core, dist_attribute, auto

    def specification(self, tensor, mesh):
        attribute = self.attribute.TensorDistAttr()
        attribute.dims_mapping = tensor["dims_mapping"]
        attribute.process_mesh = mesh
        return self.attribute.DistTensorSpec(tensor["shape"], attribute)

    def argument(self, value, mesh):
        if isinstance(value, list):
            return [self.specification(tensor, mesh) for tensor in value]
        return value["attr"] if "attr" in value else self.specification(value, mesh)

    def mesh(self, fields):
        nested = fields["process_ids"]
        for size in reversed(fields["shape"][1:]):
            nested = [nested[at : at + size] for at in range(0, len(nested), size)]
        return self.auto.ProcessMesh(mesh=nested)

    def answer(self, case):
        rule = self.core.get_phi_spmd_rule(case["rule"])
        infer = rule.infer_forward if case["direction"] == "forward" else rule.infer_backward
        mesh = self.mesh(case["mesh"])
        try:
            sides = infer(*(self.argument(value, mesh) for value in case["args"]))
        except Exception as error:  # of whatever type: the rule refuses
            return {"raises": str(error)}
        return dict(zip(("inputs", "outputs"), (self.layouts(side) for side in sides)))

    def layouts(self, side):
        places = {}
        for at, value in enumerate(side):
            if isinstance(value, list):
                places.update((f"{at}.{k}", one) for k, one in enumerate(value))
            else:
                places[str(at)] = value
        return {place: (v.dims_mapping, sorted(v._partial_dims())) for place, v in places.items()}


def plain(expect):
    if "raises" in expect:
        return expect
    return {
        side: {
            place: (fields["dims_mapping"], sorted(fields.get("partial_dims", [])))
            for place, fields in expect[side].items()
        }
        for side in ("inputs", "outputs")
    }


def agree(ours, theirs):
    if "raises" in ours or "raises" in theirs:
        return ("raises" in ours) == ("raises" in theirs)
    return ours == theirs


def given(case):
    """All tensors of the case, those of lists one by one."""
    for value in case["args"]:
        for tensor in value if isinstance(value, list) else [value]:
            if "shape" in tensor:
                yield tensor


def is_uneven(case, tensor):
    sizes = case["mesh"]["shape"]
    pairs = zip(tensor["shape"], tensor["dims_mapping"])
    return any(dim != -1 and size % sizes[dim] != 0 for size, dim in pairs)


def divides_twice(layouts):
    for mapping, _ in layouts.values():
        dims = [dim for dim in mapping if dim != -1]
        if len(dims) != len(set(dims)):
            return True
    return False


def divides_heads_unevenly(case, theirs):
    """One head that serves all is none that can be divided."""
    queries, keys = case["args"][0]["shape"][2], case["args"][1]["shape"][2]
    dim = theirs["inputs"]["1"][0][2] if "raises" not in theirs else -1
    return queries != keys and dim != -1 and keys % case["mesh"]["shape"][dim] != 0


def reason(case, theirs):
    """Why the answers differ; each of these is in docs/distributed-tensors.md."""
    rule, backward = case["rule"], case["direction"] == "backward"
    tensors = list(given(case))
    if "raises" not in theirs and divides_twice(theirs["outputs"]):
        return "Paddle divides an output twice by one mesh dimension"
    if rule in ("softmax", "transpose") and any(is_uneven(case, tensor) for tensor in tensors):
        return "Paddle drops an uneven division on one side only"
    if rule == "conv2d" and any(max(tensor["dims_mapping"][2:]) != -1 for tensor in tensors):
        return "Paddle divides the filter and the places of an image without their neighbours"
    if rule == "flash_attention" and backward:
        return "Paddle hears v, an input, where outputs are asked"
    if rule == "flash_attention" and divides_heads_unevenly(case, theirs):
        return "Paddle divides fewer heads of keys that are not even"
    if rule == "argmax" and backward:
        return "Paddle divides the dimension in which the largest is looked for"
    if rule == "c_embedding" and backward:
        return "Paddle leaves out_grad divided by what divides the table's rows"
    if rule == "layer_norm" and backward and "Tensor Axis[1]" in theirs.get("raises", ""):
        return "Paddle refuses two divisions that are both left out"
    if rule == "where" and any(1 in tensor["shape"] for tensor in tensors):
        return "Paddle divides dimensions of size 1"
    if rule == "where" and not backward:
        return "Paddle does not hear y"
    return None


def answers_of(command, cases):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cases.json")
        with open(path, "w") as file:
            json.dump({"spmd_cases": cases}, file)
        text = subprocess.check_output([command, "spmd", "infer", path, "--json", "-q"])
    return {case["id"]: plain(case["expect"]) for case in json.loads(text)["spmd_cases"]}


def main():
    command, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    os.environ.setdefault("GLOG_minloglevel", "3")
    try:
        paddle = Paddle()
    except ImportError as error:
        print(f"skipped: PaddlePaddle is not installed here ({error})")
        return SKIPPED
    cases = [drawn_case(seed) for seed in range(first, first + count)]
    ours = answers_of(command, cases)
    seen, reasons = collections.Counter(), collections.Counter()
    unexplained = 0
    for case in cases:
        seen[case["rule"]] += 1
        theirs = paddle.answer(case)
        if agree(ours[case["id"]], theirs):
            continue
        why = reason(case, theirs)
        if why:
            reasons[f"{case['rule']}: {why}"] += 1
            continue
        unexplained += 1
        print(f"{json.dumps(case)}\n  ours   {ours[case['id']]}\n  Paddle {theirs}")
    for why, times in sorted(reasons.items()):
        print(f"{times:5} {why}")
    agreeing = count - sum(reasons.values()) - unexplained
    print(f"{agreeing} of {count} random cases of {len(seen)} operators agree, ", end="")
    print(f"{sum(reasons.values())} differ as explained, {unexplained} otherwise")
    return 0 if unexplained * 1000 <= count else 1


if __name__ == "__main__":
    sys.exit(main())
