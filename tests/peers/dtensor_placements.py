"""A second voice on the rules of distributed tensors: PyTorch's DTensor, 2.13, on a 2x2 mesh of four processes that
talk by gloo. Every operator of dtensor_operators.py with every placement of its inputs (R, S of each axis, P(sum)):

- the placements of the outputs are those of `pipewright spmd infer`; where they are not, a reason says why, by what
  bringing the inputs there and making the outputs whole moves, both priced by `pipewright spmd reshard`. Inputs that
  contradict each other are refused; then what counts is how `pipewright spmd complete` has the operator compute;
- each process computes the parts of its outputs from the parts of its inputs as inferred here. They are what DTensor
  has where it places them alike, and together always what one process computes from everything.

Whole numbers, so that sums of any order are equal. A part of the cases runs, as the commit chooses;
PIPEWRIGHT_DTENSOR_ALL=1 takes all. Exit status 77 (skipped) where torch 2.13 is missing."""

import collections
import json
import logging
import os
import random
import subprocess
import sys
import tempfile

from dtensor_mesh import RANKS, answers_of_dtensor, mapping_of, part_of, placements_of, several, without_sums

SKIPPED = 77
MESH = {'shape': [2, 2], 'process_ids': [0, 1, 2, 3]}
PARTS = 8  # one of so many cases runs, unless all do
MOST_DIFFERENCE = 1e-12  # relative, of functions that are no whole numbers


# What the command says.


def call(command, what, field, document):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'cases.json')
        with open(path, 'w') as file:
            json.dump(document, file)
        return json.loads(subprocess.check_output([command, 'spmd', what, path, '--json', '-q']))[field]


def case_of(number, operator, placements):
    tensors = [
        {'shape': list(shape), **mapping_of(one, len(shape))}
        for (shape, _), one in zip(operator.inputs, placements)
    ]
    arguments = [tensors] if operator.is_list else tensors
    arguments += [{'shape': [], 'dims_mapping': []}] * operator.left_out
    arguments = arguments + [{'attr': value} for value in operator.attributes]
    return {'id': str(number), 'rule': operator.rule, 'direction': 'forward', 'mesh': MESH, 'args': arguments}


class Answer:
    """Placements of inputs and outputs, or `refusal` and what completion says then."""

    def __init__(self, inputs, outputs, refusal=None):
        self.inputs, self.outputs, self.refusal = inputs, outputs, refusal


def inferred(command, cases):
    document = {'spmd_cases': [case_of(at, *case) for at, case in enumerate(cases)]}
    answers = []
    for one in call(command, 'infer', 'spmd_cases', document):
        expect = one['expect']
        if 'raises' in expect:
            answers.append(Answer(None, None, expect['raises']))
        else:
            sides = (expect['inputs'], expect['outputs'])
            inputs, outputs = ([placements_of(layout) for layout in side.values()] for side in sides)
            answers.append(Answer(inputs[: len(cases[len(answers)][0].inputs)], outputs))
    for at, (inputs, outputs) in completed(command, cases, [a for a, one in enumerate(answers) if one.refusal]).items():
        answers[at].inputs, answers[at].outputs = inputs, outputs
    return answers


def completed(command, cases, refused):
    """Where inputs contradict each other, how the operator computes in a graph: each input comes from an operator, so
    that one of them is brought where the others are."""
    graph = {'schema': 'pipewright.graph/1', 'meshes': {'m': {'shape': [2, 2], 'ranks': [0, 1, 2, 3]}},
             'tensors': {}, 'operators': []}
    for at in refused:
        operator, placements = cases[at]
        names = []
        for place, ((shape, _), one) in enumerate(zip(operator.inputs, placements)):
            names.append(f'{at}:{place}')
            layout = mapping_of(one, len(shape))
            annotation = {'mesh': 'm', 'dims_mapping': layout['dims_mapping'],
                          'partial': {str(dim): 'sum' for dim in layout['partial_dims']}}
            before = names[-1] + ' before'
            graph['tensors'][before] = {'shape': list(shape), 'type': 'float64', 'annotation': annotation}
            graph['tensors'][names[-1]] = {'shape': list(shape), 'type': 'float64'}
            graph['operators'].append({'name': f'bring {names[-1]}', 'rule': 'assign', 'inputs': [before],
                                       'outputs': [names[-1]]})
        outputs = []
        for place, shape in enumerate(shapes_of(operator)):
            outputs.append(f'{at}>{place}')
            graph['tensors'][outputs[-1]] = {'shape': shape, 'type': 'float64'}
        graph['operators'].append({'name': str(at), 'rule': operator.rule, 'outputs': outputs,
                                   'inputs': [names] if operator.is_list else names + [None] * operator.left_out,
                                   'attributes': operator.attributes})
    if not refused:
        return {}
    result = {}
    for one in call(command, 'complete', 'graph', graph)['operators']:
        if one['name'].isdigit():
            annotation = one['annotation']
            sides = (annotation['inputs'], annotation['outputs'])
            result[int(one['name'])] = [[in_order(layout) for layout in side if layout] for side in sides]
    return result


def in_order(layout):
    fields = {'dims_mapping': layout['dims_mapping']}
    partial = layout.get('partial', {})
    fields['partial_dims'] = [int(dim) for dim in partial]
    fields['reduction'] = next(iter(partial.values()), None)
    return placements_of(fields)


def shapes_of(operator):
    made = operator.compute(*operator.whole_inputs())
    return [list(one.shape) for one in (made if isinstance(made, (tuple, list)) else [made])]


# Ours against the whole and against DTensor.


def computed_here(operator, answer):
    """The outputs of each process from the parts of its inputs, by output and rank."""
    whole = operator.whole_inputs()
    shapes = shapes_of(operator)
    used = list(answer.inputs)
    if operator.rule == 'gather':  # of an index that stays as it came a process takes what its output has
        used[1] = tuple(one if one == 'S0' else 'R' for one in answer.outputs[0])
    by_rank = []
    for rank in range(RANKS):
        given = [part_of(tensor, placements, rank) for tensor, placements in zip(whole, used)]
        local = [local_shape(shape, one, rank) for shape, one in zip(shapes, answer.outputs)]
        by_rank.append(several(operator.on_parts([x for x, _ in given], [at for _, at in given], local)))
    return [list(parts) for parts in zip(*by_rank)]


def local_shape(shape, placements, rank):
    import torch

    return list(part_of(torch.empty(shape), [p if p[0] == 'S' else 'R' for p in placements], rank)[0].shape)


def alike(one, other):
    if one.shape != other.shape:
        return False
    return one.numel() == 0 or bool(((one - other).abs() <= MOST_DIFFERENCE * other.abs().clamp(min=1)).all())


def numbers(tensor):
    import torch

    return tensor.to(torch.float64)


def wrong_values(operator, ours, theirs):
    """Says which values are not as they should be; nothing where all are."""
    outputs = several(operator.compute(*operator.whole_inputs()))
    here = computed_here(operator, ours)
    for at, (whole, parts, placements) in enumerate(zip(outputs, here, ours.outputs)):
        divided = [one if one[0] == 'S' else 'R' for one in placements]
        summed = [numbers(one) for one in without_sums(parts, placements)]
        for rank in range(RANKS):
            if not alike(summed[rank], numbers(part_of(whole, divided, rank)[0])):
                return f'output {at} of process {rank} is not its part of the whole'
        if any('raises' in one for one in theirs) or theirs[0]['outputs'][at] != placements:
            continue
        there = [answer['parts'][at] for answer in theirs]
        if any(one is None for one in there):
            return f'output {at} of DTensor cannot be summed'
        there = [numbers(one) for one in there]
        if not all(alike(*pair) for pair in zip(summed, without_sums(there, placements))):
            return f'output {at} is not what DTensor has'
        if theirs[0]['inputs'] == ours.inputs and not all(
            alike(numbers(one), other) for one, other in zip(parts, there)
        ):
            return f'output {at} is not what DTensor has before the sum'
    return None


# Differences.


class Prices:
    """What it moves to bring a tensor from one layout to another, asked all at once."""

    def __init__(self, command):
        self.command, self.asked, self.bytes = command, {}, []

    def of(self, shape, before, after):
        return self.asked.setdefault((tuple(shape), tuple(before), tuple(after)), len(self.asked))

    def ask(self):
        mesh = [[0, 1], [2, 3]]
        cases = [
            {'id': str(at), 'shape': list(shape), 'in': {'mesh': mesh, 'placements': before},
             'out': {'mesh': mesh, 'placements': after}}
            for (shape, before, after), at in self.asked.items()
        ]
        answers = call(self.command, 'reshard', 'reshard_cases', {'reshard_cases': cases})
        self.bytes = [one['expect']['bytes'] for one in answers]

    def together(self, numbers_of_prices):
        return sum(self.bytes[at] for at in numbers_of_prices)

    def moves(self, case, inputs, outputs):
        """All it takes to compute so, and to have whole outputs then."""
        operator, placements = case
        brought = zip(operator.inputs, placements, inputs)
        return [self.of(shape, *pair) for (shape, _), *pair in brought] + [
            self.of(shape, one, ('R', 'R')) for shape, one in zip(shapes_of(operator), outputs)
        ]


SAME = 'the same placements'


def without_names(outputs):
    """Truth values that are all true have a product, and any of them a sum, that is true."""
    return [tuple({'P(all)': 'P(prod)', 'P(any)': 'P(sum)'}.get(one, one) for one in output) for output in outputs]


def is_strided(outputs):
    return any(one.startswith('strided') for output in outputs for one in output)


def is_true_of_dtensor(operator, theirs):
    """Whether its parts are together the whole. What is divided in strides is not looked into."""
    for at, whole in enumerate(several(operator.compute(*operator.whole_inputs()))):
        placements = theirs[0]['outputs'][at]
        parts = [one['parts'][at] for one in theirs]
        if any(one is None for one in parts):
            return False
        if is_strided([placements]):
            continue
        summed = without_sums([numbers(one) for one in parts], placements)
        divided = [one if one[0] == 'S' else 'R' for one in placements]
        if not all(alike(summed[rank], numbers(part_of(whole, divided, rank)[0])) for rank in range(RANKS)):
            return False
    return True


def plain_reason(case, ours, theirs):
    """What needs no prices."""
    if any('raises' in one for one in theirs):
        return f'DTensor has no answer: {case[0].rule}'
    if not is_true_of_dtensor(case[0], theirs):
        return f"DTensor's values are not those of the whole operator: {case[0].rule}"
    outputs = theirs[0]['outputs']
    if outputs == ours.outputs[: len(outputs)]:
        return SAME
    if outputs == without_names(ours.outputs):
        return 'the same, called otherwise: all and any'
    if is_strided(outputs):
        return 'DTensor leaves a division in strides, which no placement says'
    return None


def contradicts(placements):
    """Along a dimension of the mesh, two inputs are divided along different ones of theirs."""
    return any(len({one for one in line if one[0] == 'S'}) > 1 for line in zip(*placements))


def priced_reason(case, ours, bytes_here, bytes_there):
    operator, placements = case
    if bytes_here < bytes_there:
        return 'fewer bytes here'
    if bytes_here == bytes_there:
        return 'as many bytes'
    if any(one[0] == 'P' for line in placements for one in line):
        return 'more bytes: DTensor passes sums on, or divides what it sums'
    if operator.rule in ('concat', 'stack'):
        return 'more bytes: each dimension of the mesh by itself goes where the fewest elements move'
    if operator.rule == 'matmul' and 'uneven' not in operator.name:
        return 'more bytes: a product hears its factors together, rows and columns before the sum'
    if 'uneven' in operator.name:
        return 'more bytes: the dimension that is summed does not divide evenly'
    if ours.refusal or contradicts(placements):
        return 'more bytes: inputs contradict each other, and the first is heard'
    return None


class Judgement:
    def __init__(self):
        self.reasons, self.operators, self.failures = collections.Counter(), set(), 0

    def fails(self, case, ours, theirs, why):
        self.failures += 1
        there = {key: theirs[0].get(key) for key in ('inputs', 'outputs', 'raises')}
        print(f'{case[0].name} {case[1]}: {why}\n  here {ours.inputs} -> {ours.outputs} {ours.refusal or ""}\n'
              f'  DTensor {there}')

    def judge(self, cases, ours, theirs, prices):
        priced = []
        for case, mine, other in zip(cases, ours, theirs):
            self.operators.add(case[0].rule)
            reason = plain_reason(case, mine, other)
            wrong = wrong_values(case[0], mine, other if reason == SAME else [{'raises': ''}])
            if any(one[0] == 'P' for line in mine.inputs for one in line):
                wrong = 'an input stays partial'
            if wrong:
                self.fails(case, mine, other, wrong)
            elif reason:
                self.reasons[reason] += 1
            elif other[0]['inputs'] is None:
                self.fails(case, mine, other, 'PyTorch computes it by several operators')
            else:
                outputs = mine.outputs[: len(other[0]['outputs'])]
                pair = (prices.moves(case, mine.inputs, outputs),
                        prices.moves(case, other[0]['inputs'], other[0]['outputs']))
                priced.append((case, mine, other, *pair))
        self.price(priced, prices)

    def price(self, priced, prices):
        prices.ask()
        here = there = 0
        for case, mine, other, moves_here, moves_there in priced:
            pair = prices.together(moves_here), prices.together(moves_there)
            here, there = here + pair[0], there + pair[1]
            reason = priced_reason(case, mine, *pair)
            if reason:
                self.reasons[reason] += 1
            else:
                self.fails(case, mine, other, f'moves {pair[0]} bytes, DTensor {pair[1]}')
        print(f'where outputs lie otherwise, {here} bytes here and {there} by DTensor')


def seed_of_commit():
    try:
        text = subprocess.check_output(['git', 'rev-parse', 'HEAD'], text=True, stderr=subprocess.DEVNULL,
                                       cwd=os.path.dirname(os.path.abspath(__file__)))
        return int(text[:7], 16)
    except (OSError, subprocess.CalledProcessError):
        return 0


def chosen_cases(operators):
    every = [(operator, placements) for operator in operators for placements in operator.combinations()]
    if os.environ.get('PIPEWRIGHT_DTENSOR_ALL') == '1':
        return every
    part = seed_of_commit() % PARTS
    return [case for at, case in enumerate(every) if random.Random(at).randrange(PARTS) == part]


def main():
    command = sys.argv[1]
    try:
        import torch
        import torch.distributed.tensor
    except ImportError as error:
        print(f'skipped: PyTorch 2.13 is not installed here ({error})')
        return SKIPPED
    if not torch.__version__.startswith('2.13.'):
        print(f'skipped: PyTorch is {torch.__version__}, not 2.13')
        return SKIPPED
    import dtensor_operators

    logging.disable(logging.WARNING)  # DTensor's, of what could be faster
    cases = chosen_cases(dtensor_operators.operators())
    judgement = Judgement()
    judgement.judge(cases, inferred(command, cases), list(zip(*answers_of_dtensor(torch, cases))), Prices(command))
    for reason, times in judgement.reasons.most_common():
        print(f'{times:5} {reason}')
    print(f'{len(cases)} cases of {len(judgement.operators)} operators, {judgement.failures} without a reason')
    return 1 if judgement.failures or not judgement.reasons[SAME] else 0


if __name__ == '__main__':
    sys.exit(main())
