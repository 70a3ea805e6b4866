"""DTensor on a mesh of four processes, 2x2, that talk by gloo, for dtensor_placements.py; and the notation that it and
the command share."""

import datetime
import math
import os
import sys
import tempfile
import traceback

RANKS = 4


# Placements in the notation of the command, one for each dimension of the mesh.


def mapping_of(placements, dims):
    """dims_mapping and partial_dims."""
    mapping = [[] for _ in range(dims)]
    for dim, one in enumerate(placements):
        if one.startswith('S'):
            mapping[int(one[1:])].append(dim)
    return {
        'dims_mapping': [-1 if not each else each[0] if len(each) == 1 else each for each in mapping],
        'partial_dims': [dim for dim, one in enumerate(placements) if one.startswith('P')],
    }


def placements_of(layout):
    result = ['R', 'R']
    for axis, dims in enumerate(layout.get('multi_dims_mapping', layout['dims_mapping'])):
        for dim in dims if isinstance(dims, list) else [dims]:
            if dim != -1:
                result[dim] = f'S{axis}'
    for dim in layout.get('partial_dims', []):
        result[dim] = f'P({layout["reduction"]})'
    return tuple(result)


def from_torch(placements):
    names = {'product': 'prod'}

    def text(one):
        if one.is_partial():
            is_norm = type(one).__name__ == '_NormPartial'
            return f'P({"norm" if is_norm else names.get(one.reduce_op, one.reduce_op)})'
        if not one.is_shard():
            return 'R' if one.is_replicate() else f'strided S{one.dim}'
        return f'S{one.dim}'

    return tuple(text(one) for one in placements)


def to_torch(placements):
    from torch.distributed.tensor import Partial, Replicate, Shard

    return [Replicate() if one == 'R' else Partial() if one[0] == 'P' else Shard(int(one[1:])) for one in placements]


def part_of(whole, placements, rank):
    """The part of one process, and where it begins; of what is to be summed the first process has all but what the
    other one has: halves, rounded."""
    offset = [0] * whole.dim()
    part = whole
    for dim, one in enumerate(placements):
        coordinate = (rank >> 1, rank & 1)[dim]
        if one.startswith('S'):
            axis = int(one[1:])
            size = part.shape[axis]
            begin = min(size, coordinate * math.ceil(size / 2))
            end = min(size, begin + math.ceil(size / 2))
            part = part.narrow(axis, begin, end - begin)
            offset[axis] += begin
        elif one.startswith('P'):
            other = part // 2
            part = other if coordinate else part - other
    return part.contiguous(), offset


REDUCTIONS = {
    'sum': lambda a, b: a + b,
    'avg': lambda a, b: (a + b) / 2,
    'prod': lambda a, b: a * b,
    'max': lambda a, b: a.maximum(b),
    'min': lambda a, b: a.minimum(b),
    'all': lambda a, b: a & b,
    'any': lambda a, b: a | b,
    'logsumexp': lambda a, b: a.logaddexp(b),
    'norm': lambda a, b: a.hypot(b),
}


def without_sums(parts, placements):
    """What each process has after all that is partial is brought together."""
    for dim, one in enumerate(placements):
        if one.startswith('P'):
            reduce, bit = REDUCTIONS[one[2:-1]], (2, 1)[dim]
            parts = [reduce(parts[rank & ~bit], parts[rank | bit]) for rank in range(RANKS)]
    return parts


def several(made):
    return list(made) if isinstance(made, (tuple, list)) else [made]


# DTensor, on four processes.


def divide_attention():
    """DTensor knows how attention is divided by its GPU's operator alone. The CPU's is the same function, with two of
    its nine results."""
    import torch
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor._ops import _matrix_ops
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy, register_op_strategy

    @register_op_strategy(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
                          schema_info=RuntimeSchemaInfo(4))
    def as_on_gpus(schema):
        ways = _matrix_ops._scaled_dot_product_flash_attention_base_strategies(schema)
        return expand_to_full_mesh_op_strategy(schema.get_mesh_from_args(), schema,
                                               [[*way[:2], *way[9:]] for way in ways], input_index=2)


class Worker:
    """One process of the mesh."""

    def __init__(self, rank, meeting):
        import torch
        import torch.distributed
        from torch.distributed.tensor import DTensor, init_device_mesh

        torch.set_num_threads(1)
        timeout = datetime.timedelta(seconds=60)
        torch.distributed.init_process_group('gloo', init_method=f'file://{meeting}', rank=rank, world_size=RANKS,
                                             timeout=timeout)
        self.tensor, self.rank = DTensor, rank
        self.mesh = init_device_mesh('cpu', (2, 2))
        divide_attention()
        self.schemas = []
        self.watch()

    def watch(self):
        """Keeps what DTensor makes of the inputs of each operator that it is asked for."""
        propagator = self.tensor._op_dispatcher.sharding_propagator
        ask = propagator.propagate_op_sharding_non_cached

        def asked(schema):
            answer = ask(schema)
            self.schemas.append(answer.redistribute_schema if answer.needs_redistribute else schema)
            return answer

        propagator.propagate_op_sharding_non_cached = asked
        propagator.propagate_op_sharding.cache_clear()
        propagator.propagate_op_sharding = asked

    def distributed(self, whole, placements):
        part, _ = part_of(whole, placements, self.rank)
        return self.tensor.from_local(part, self.mesh, to_torch(placements), run_check=False, shape=whole.shape,
                                      stride=whole.stride())

    def computed_with(self, order):
        """The placements of the inputs, where one operator of PyTorch's is all."""
        if len(self.schemas) != 1 or self.schemas[0] is None:
            return None
        found = [from_torch(one.placements) for one in self.schemas[0].args_spec]
        return [found[at] for at in order] if len(found) == len(order) else None

    def answer(self, case):
        operator, placements = case
        inputs = [self.distributed(*one) for one in zip(operator.whole_inputs(), placements)]
        self.schemas.clear()
        try:
            made = several(operator.compute(*inputs))
        except Exception as error:  # of whatever type: it refuses
            return {'raises': f'{type(error).__name__}: {error}'.splitlines()[0]}
        inputs = self.computed_with(operator.order)  # before anything else is asked
        return {'inputs': inputs, 'outputs': [from_torch(one.placements) for one in made],
                'parts': [self.part(one) for one in made]}

    def part(self, made):
        """Of rows that a table does not have here DTensor makes zeros only when it sums them; None where it cannot."""
        part = made.to_local()
        for one in made.placements:
            if type(one).__name__ == '_MaskPartial':
                part = part.clone()
                try:
                    one.mask_buffer.apply_mask(part)
                except Exception:  # of whatever type
                    return None
                break
        return part


def work(rank, meeting, cases, path):
    import torch

    worker = Worker(rank, meeting)
    torch.save([worker.answer(case) for case in cases], path)
    torch.distributed.destroy_process_group()


def answers_of_dtensor(torch, cases):
    """By rank, then by case."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(RANKS):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    work(rank, f'{folder}/meeting', cases, f'{folder}/{rank}')
                    status = 0
                except BaseException:
                    traceback.print_exc()
                os._exit(status)
            children.append(child)
        if any([os.waitpid(child, 0)[1] for child in children]):
            sys.exit('a process of the mesh failed')
        return [torch.load(f'{folder}/{rank}') for rank in range(RANKS)]
