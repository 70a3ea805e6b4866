"""A GPT of 1.3e9 parameters on the whole GPU: what its step is of the data sheet's rate, where the time of its kernels
goes, and PyTorch's step of the same model beside it."""
import collections
import csv
import glob
import json
import os
import re
import shutil

from gpu_check import machine
from gpu_check.jobs import memory_figure, plan_by_profile, run_plan, write_job
from gpu_check.machine import Failed, NotTaken

MICRO_BATCHES = 2
SAMPLES = 4  # of a micro-batch
STEPS = 6

# What a kernel is for, by its name; the first that fits.
KINDS = (
    ('products', r'gemm|nvjet|xmma|cutlass|splitK'),
    ('attention', r'(?i)causal_?softmax|cudnn'),
    ('norms', r'LayerNorm|RmsNorm'),
    ('loss', r'CrossEntropy'),
    ('columns', r'column|Column|Bias'),
    ('update', r'Adamw|square|clip'),
)
ELEMENTS = 'elements and the rest'
# Kernels that memory alone should hold up: bytes that each has to move in 16 bits, for each number of a row, and how
# many times as wide as the model rows are.
MOVED = (
    ('LayerNormForward', 4, 1),
    ('LayerNormBackwardInput', 6, 1),
    ('LayerNormTerm', 4, 1),
    ('Gelu<', 4, 4),
    ('GeluGradient', 6, 4),
)
BEFORE_STEPS = r'\bStart\b'  # how weights begin


def gpt_flops(shape, tokens):
    """6 N + 12 L h s for each token (PaLM, arXiv:2204.02311, appendix B); N are the blocks' and the head's weights."""
    weights = 12 * shape.layers * shape.hidden ** 2 + shape.vocabulary * shape.hidden
    return tokens * (6 * weights + 12 * shape.layers * shape.hidden * shape.sequence)


def gpt(context, shape):
    shape = context.shape(shape)
    file = write_job(context, shape, 1, SAMPLES * MICRO_BATCHES, '1f1b', STEPS, 'bf16', SAMPLES)
    plan_by_profile(context, file, SAMPLES, 1, 'bf16')
    ran = run_plan(context, 'plan.json', 'run', '--device', 'cuda', '--precision', 'bf16')
    step_s = ran['steps'][-1]['step_ns'] * 1e-9
    tokens = SAMPLES * MICRO_BATCHES * shape.sequence
    context.figure('GPT of 1.3e9: step, ms', step_s * 1e3)
    context.figure('GPT of 1.3e9: tokens a second', tokens / step_s)
    peak = machine.peak_tflops(context.device, 'bf16')
    mfu = peak and gpt_flops(shape, tokens) / step_s * 1e-12 / peak
    context.figure('GPT of 1.3e9: MFU of wall time', mfu, '>=', 0.5)
    foretold = context.read('plan.json').get('predicted', {}).get('step_ns')
    if foretold:
        context.figure('GPT of 1.3e9: step, foretold against measured', abs(foretold * 1e-9 / step_s - 1), '<=', 0.05)
    memory_figure(context, 'GPT of 1.3e9', ran)


# --- PyTorch ---

def pytorch(context, shape):
    """The same model, batch and precision in PyTorch, where a python3 has it."""
    shape = context.shape(shape)
    python = shutil.which('python3', path=context.runner.environment['PATH'])
    program = os.path.join(context.source, 'scripts/gpu_check/pytorch_gpt.py')
    try:
        context.runner.run([python, '-c', 'import torch; assert torch.cuda.is_available()'], context.log)
    except Failed:
        raise NotTaken(f'{python} has no PyTorch that sees a GPU') from None
    context.runner.run([python, program, json.dumps(shape._asdict()), str(MICRO_BATCHES), str(SAMPLES),
                        context.path('pytorch.json')], context.log)
    found = context.read('pytorch.json')
    for name, step_s in found['step_s'].items():
        context.figure(f'GPT of 1.3e9, PyTorch {found["version"]}, {name}: step, ms', step_s * 1e3)


# --- Kernels ---

def profiler():
    """Nsight Compute's command, or None."""
    places = sorted(glob.glob('/opt/nvidia/nsight-compute/*/ncu')) + ['/usr/local/cuda/bin/ncu']
    return shutil.which('ncu') or next((one for one in reversed(places) if os.path.isfile(one)), None)


def kind_of(kernel):
    return next((kind for kind, pattern in KINDS if re.search(pattern, kernel)), ELEMENTS)


def short_name(kernel):
    """Without what namespaces and arguments add."""
    return re.sub(r'pipewright::exec::cuda::|\(anonymous namespace\)::|<unnamed>::|^void ', '', kernel).split('(')[0][:100]


def kernels_of(lines):
    """(name, ns, bytes of the GPU's memory) of each kernel, from Nsight Compute's CSV."""
    rows = list(csv.DictReader(line for line in lines if line.startswith('"')))
    found = {}
    for row in rows:
        value = float(row['Metric Value'].replace(',', ''))
        found.setdefault((row['ID'], row['Kernel Name']), {})[row['Metric Name']] = value
    return [(name, metrics['gpu__time_duration.sum'], metrics.get('dram__bytes.sum', 0))
            for (_, name), metrics in found.items()]


def kernels(context, shape):
    """A step of one micro-batch, kernel by kernel, without a graph; clocks are left as they are."""
    tool = profiler()
    if tool is None:
        raise NotTaken('Nsight Compute is not here')
    if context.rehearsal:
        raise NotTaken('a rehearsal has no kernels')
    # Not of 16 bits: it is planned without a profile, and has no rates of these.
    shape = context.shape(shape)
    file = write_job(context, shape, 1, SAMPLES, '1f1b', 1, 'fp32', SAMPLES)
    context.pipewright('tune', file, '-o', context.path('plan.json'))
    context.runner.run([tool, '--clock-control', 'none', '--metrics', 'gpu__time_duration.sum,dram__bytes.sum', '--csv',
                        '--print-units', 'base', '--log-file', context.path('kernels.csv'),
                        context.program('pipewright'), 'run', context.path('plan.json'), '--data',
                        os.path.join(context.source, 'LICENSE'), '--device', 'cuda', '--precision', 'bf16'],
                       context.log)
    with open(context.path('kernels.csv'), encoding='utf-8') as file:
        found = kernels_of(file)
    if not found:
        raise Failed('Nsight Compute tells of no kernel')
    report(context, found)
    report_rates(context, found, SAMPLES * shape.sequence * shape.hidden)


def report_rates(context, found, numbers):
    """Of kernels that move so many numbers, or a multiple: what they have to move a second, of what AdamW's update
    does, which no cache helps."""
    def per_ns(pattern, moved=None):
        runs = [(ns, moved or of_memory) for name, ns, of_memory in found if re.search(pattern, name)]
        return sum(of for _, of in runs) / sum(ns for ns, _ in runs) if runs else None

    update = per_ns('AdamwUpdate')
    for name, each, wide in MOVED:
        rate = per_ns(name, each * wide * numbers)
        if rate and update:
            context.figure(f'kernels of a step: {name.rstrip("<")}: bytes a second, of the update\'s', rate / update,
                           '>=', 0.7)


def report(context, found):
    kinds, names = collections.Counter(), collections.defaultdict(lambda: [0, 0, 0])
    for name, ns, moved in found:
        if re.search(BEFORE_STEPS, name):
            continue
        kinds[kind_of(name)] += ns
        row = names[short_name(name)]
        row[0], row[1], row[2] = row[0] + 1, row[1] + ns, row[2] + moved
    total = sum(kinds.values())
    with open(context.path('kernels.txt'), 'w', encoding='utf-8') as file:
        for name, (count, ns, moved) in sorted(names.items(), key=lambda one: -one[1][1]):
            file.write(f'{ns / total * 100:6.2f} %  {count:5} x {ns / count / 1000:9.2f} us  '
                       f'{moved / ns if ns else 0:8.1f} GB/s  {kind_of(name):22} {name}\n')
    for kind, ns in kinds.most_common():
        context.figure(f'kernels of a step: share of {kind}', ns / total)
    context.figure('kernels of a step: share outside products and attention',
                   1 - (kinds['products'] + kinds['attention']) / total, '<=', 0.15)
