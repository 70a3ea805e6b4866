"""The operators that dtensor_placements.py tries: each in the notation of `pipewright spmd infer`, as PyTorch
computes it whole or as DTensor, and as one process computes it from its parts."""

import itertools

import torch
from torch.nn import functional

# The most layouts of an operator's inputs that are tried; of operators with two inputs of two dimensions that is all.
MOST_COMBINATIONS = 400


class Operator:
    """`inputs` are (shape, kind): values are whole numbers from the range of their kind. `on_parts` computes from the
    parts of one process, their offsets and the shapes of its outputs, where that is not what computes the whole."""

    def __init__(self, rule, compute, inputs, attributes=(), name=None, is_list=False, on_parts=None, order=None,
                 axes=8, left_out=0):
        self.axes = axes  # the first so many dimensions of the inputs are divided
        self.left_out = left_out  # inputs of the rule behind these
        self.rule, self.compute, self.attributes = rule, compute, list(attributes)
        self.order = order or range(len(inputs))  # of the inputs, as PyTorch's own operator takes them
        self.inputs = [one if isinstance(one[0], tuple) else (one, 'number') for one in inputs]
        self.name, self.is_list = name or rule, is_list
        self.on_parts = on_parts or (lambda parts, offsets, shapes: compute(*parts))

    def whole_inputs(self):
        draw = torch.Generator().manual_seed(20)
        return [drawn(draw, *one) for one in self.inputs]

    def combinations(self):
        """All layouts of the inputs by placements on a mesh of two dimensions, or so many of them drawn."""
        placements = [
            ['R', *(f'S{axis}' for axis in range(min(len(shape), self.axes))), *(['P(sum)'] if kind != 'truth' else [])]
            for shape, kind in self.inputs
        ]
        every = list(itertools.product(*(list(itertools.product(one, one)) for one in placements)))
        if len(every) <= MOST_COMBINATIONS:
            return every
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(20))
        return [every[at] for at in order[:MOST_COMBINATIONS].tolist()]


def drawn(draw, shape, kind):
    """Small, so that products of many are exact. A 'row' is one of four; truths cannot be summed."""
    least, most, of = {'number': (1, 5, torch.float64), 'signed': (-4, 5, torch.float64),
                       'flag': (0, 2, torch.float64), 'truth': (0, 2, torch.bool),
                       'row': (0, 4, torch.int64)}[kind]
    return torch.randint(least, most, shape, generator=draw, dtype=of)


def looked_up(parts, offsets, shapes):
    """Rows that are elsewhere are zeros here."""
    ids, table = parts
    row = ids - offsets[1][0]
    here = (row >= 0) & (row < table.shape[0])
    if not table.shape[0]:
        return table.new_zeros((*ids.shape, table.shape[1]))
    return functional.embedding(row.clamp(0, table.shape[0] - 1), table) * here.unsqueeze(-1)


def in_shape(parts, offsets, shapes):
    return parts[0].reshape(shapes[0])


def one_input():
    number, signed = [(8, 4)], [((8, 4), 'signed')]
    return [
        Operator('relu', functional.relu, signed),
        Operator('gelu', functional.gelu, signed),
        Operator('silu', functional.silu, signed),
        Operator('sigmoid', torch.sigmoid, signed),
        Operator('tanh', torch.tanh, signed),
        Operator('exp', torch.exp, signed),
        Operator('log', torch.log, number),
        Operator('sqrt', torch.sqrt, number),
        Operator('rsqrt', torch.rsqrt, number),
        Operator('abs', torch.abs, signed),
        Operator('square', torch.square, signed),
        Operator('sin', torch.sin, signed),
        Operator('cos', torch.cos, signed),
        Operator('floor', torch.floor, signed),
        Operator('ceil', torch.ceil, signed),
        Operator('clip', lambda x: torch.clamp(x, -2, 2), signed),
        Operator('scale', lambda x: x * 3.0, signed),
        Operator('logical_not', torch.logical_not, signed),
        Operator('relu', functional.relu, [((5, 7), 'signed')], name='relu, uneven'),
    ]


def reducing():
    matrix, over_one = [(8, 4)], [[1], False]
    return [
        Operator('sum', lambda x: x.sum(1), matrix, over_one),
        Operator('mean', lambda x: x.mean(1), matrix, over_one),
        Operator('max', lambda x: x.amax(1), matrix, over_one),
        Operator('min', lambda x: x.amin(1), matrix, over_one),
        Operator('prod', lambda x: x.prod(1), matrix, over_one),
        Operator('all', lambda x: torch.all(x, 1), [((8, 4), 'flag')], over_one),
        Operator('any', lambda x: torch.any(x, 1), [((8, 4), 'flag')], over_one),
        Operator('logsumexp', lambda x: torch.logsumexp(x, [1]), matrix, [[1], False, False]),
        Operator('p_norm', lambda x: torch.linalg.vector_norm(x, 2, 1), matrix, [2.0, 1, 1e-12, False, False]),
        Operator('argmax', lambda x: torch.argmax(x, 1), matrix, [1, False, False]),
        Operator('cumsum', lambda x: torch.cumsum(x, 1), matrix, [1, False, False, False]),
        Operator('softmax', lambda x: torch.softmax(x, 1), matrix, [1]),
        Operator('sum', lambda x: x.sum(1), [(5, 7)], over_one, name='sum, uneven'),
    ]


def arranging():
    matrix, cube = [(8, 4)], [(4, 4, 8)]
    return [
        Operator('transpose', lambda x: x.permute(1, 2, 0), cube, [[1, 2, 0]]),
        Operator('reshape', lambda x: x.reshape(32), matrix, [[32]], name='reshape to one', on_parts=in_shape),
        Operator('reshape', lambda x: x.reshape(8, 4), [(32,)], [[8, 4]], name='reshape to two', on_parts=in_shape),
        Operator('flatten', lambda x: torch.flatten(x, 0, 1), cube, [0, 1], on_parts=in_shape),
        Operator('squeeze', lambda x: x.squeeze(1), [(8, 1, 4)], [[1]], on_parts=in_shape),
        Operator('unsqueeze', lambda x: x.unsqueeze(1), matrix, [[1]], on_parts=in_shape),
        Operator('tile', lambda x: x.repeat(2, 1, 2), matrix, [[2, 1, 2]]),
        Operator('triu', torch.triu, matrix, [0]),
        Operator('slice', lambda x: x[:, 1:3], matrix, [[1], [1], [3], [1], []]),
        Operator('split', lambda x: torch.split(x, [1, 3], 1), matrix, [[1, 3], 1]),
        Operator('unbind', lambda x: torch.unbind(x, 1), [(8, 2, 4)], [1]),
        Operator('concat', lambda *x: torch.cat(x, 1), [(8, 4), (8, 2)], [1], is_list=True),
        Operator('stack', lambda *x: torch.stack(x, 1), [(8, 4), (8, 4)], [1], is_list=True),
    ]


def two_inputs():
    pair = [((8, 4), 'signed'), (8, 4)]
    return [
        Operator('add', torch.add, pair),
        Operator('add', torch.add, [(8, 4), (4,)], name='add, broadcast'),
        Operator('subtract', torch.sub, pair),
        Operator('multiply', torch.mul, pair),
        Operator('divide', torch.div, pair),
        Operator('maximum', torch.maximum, pair),
        Operator('minimum', torch.minimum, pair),
        Operator('equal', torch.eq, pair),
        Operator('greater_than', torch.gt, pair),
        Operator('where', torch.where, [((8, 4), 'truth'), (8, 4), (8, 4)]),
        Operator('matmul', torch.mm, [(8, 4), (4, 8)], [False, False]),
        Operator('matmul', torch.mm, [(7, 5), (5, 6)], [False, False], name='matmul, uneven'),
        Operator('matmul', torch.bmm, [(4, 4, 8), (4, 8, 4)], [False, False], name='matmul, batched'),
        Operator('embedding', lambda ids, table: functional.embedding(ids, table), [((8, 4), 'row'), (4, 4)],
                 [-1, False], on_parts=looked_up, order=[1, 0]),
        Operator('gather', lambda x, index: torch.index_select(x, 0, index), [(4, 8), ((8,), 'row')], [0]),
        # Of an image whose places are divided, processes of DTensor send different messages to each other, and hang.
        Operator('conv2d', functional.conv2d, [(4, 4, 5, 5), (4, 4, 2, 2)], axes=2),
        Operator('layer_norm', lambda x, scale, bias: functional.layer_norm(x, [4], scale, bias),
                 [(8, 4), (4,), (4,)], [1e-5, 1]),
    ]


def attention():
    """[batch, heads, tokens, width], as PyTorch has them."""
    heads, others = ((4, 4, 2, 4), 'signed'), ((4, 4, 6, 4), 'signed')

    def attended(is_causal):
        return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return [
        Operator('scaled_dot_product_attention', attended(True), [heads] * 3, [True], left_out=1),
        Operator('scaled_dot_product_attention', attended(False), [heads, others, others], [False],
                 name='attention to other tokens', left_out=1),
    ]


def operators():
    return [*one_input(), *reducing(), *arranging(), *two_inputs(), *attention()]
