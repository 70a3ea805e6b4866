"""What is looked at on a GPU, the most telling first. A step has a limit in seconds, and ends there; its figures are
kept one by one, so what a step had found before its limit counts."""
import json
import os
import shutil
from collections import namedtuple

from gpu_check import gpt, machine
from gpu_check.conformance import all_of, tests
from gpu_check.jobs import memory_figure, plan_by_profile, run_plan, write_job
from gpu_check.machine import Failed, NotTaken
from gpu_check.results import figure

PRECISIONS = ('bf16', 'tf32', 'fp32')
SMALL_SET = ('*CudaMatrix*/1f1b_pp2_*:*CudaMatrix*/zb_h1_pp2_*:*CudaMatrix*/interleaved_pp4_*:'
             'CudaTrains.ATransformer*:CudaTrains.TheOther*:CudaTrains.ATiedHead*:CudaTrains.MemoryIs*')
# What runs do beside a training from its beginning.
RUN_SET = 'CudaRuns.*:CudaForwards.*'
GRAPH_SET = 'CudaGraph.ATransformer*:CudaGraph.OneRank*'
# Of the sanitizer's tools, which slow everything down.
SANITIZED_SET = '*ATransformer*:*ClippedGradients*'

# A rehearsal has no GPU, and models that a CPU trains in an instant.
Shape = namedtuple('Shape', 'hidden layers heads sequence vocabulary', defaults=(256,))
BLOCK, BLOCK_SAMPLES = Shape(4096, 1, 32, 2048), 2
PIPELINE = Shape(2048, 8, 16, 512)
BILLION = Shape(2048, 20, 16, 512)
MANY = Shape(512, 16, 8, 256)
GPT = Shape(2048, 24, 16, 2048, 50304)
REHEARSED = {BLOCK: Shape(32, 1, 2, 16), PIPELINE: Shape(32, 8, 2, 16), BILLION: Shape(32, 20, 2, 16),
             MANY: Shape(16, 16, 2, 8), GPT: Shape(32, 4, 2, 16, 512)}

Step = namedtuple('Step', 'name limit what run arguments')


class Context:
    """What a step works with: the build, its folder of raw results, and the commands' time."""

    def __init__(self, build, source, raw, runner, record, rehearsal, device):
        self.build, self.source, self.raw, self.runner = build, source, raw, runner
        self.record, self.rehearsal, self.device = record, rehearsal, device
        self.log = os.path.join(raw, 'log.txt')
        self.told = ({}, 0)  # of the tests that ran last

    def path(self, name):
        return os.path.join(self.raw, name)

    def program(self, name):
        """In the build folder, or flat in what was packed."""
        for place in ('', 'tests/gpu', 'tests/bench'):
            found = os.path.join(self.build, place, name)
            if os.path.isfile(found):
                return found
        raise NotTaken(f'{name} is not in the build')

    def pipewright(self, *words, out=None):
        self.runner.run([self.program('pipewright'), *words], self.log, out and self.path(out))

    def figure(self, *what):
        self.record['figures'].append(figure(*what))

    def shape(self, shape):
        return REHEARSED[shape] if self.rehearsal else shape

    def read(self, name):
        with open(self.path(name), encoding='utf-8') as file:
            return json.load(file)


# --- Conformance ---

def small_conformance(context):
    all_of(context, (tests, 'gpu_kernels', '*', 'kernels against the CPU, bits'),
           (tests, 'gpu_training', SMALL_SET, 'training against the serial run, small set'))


def runs(context):
    tests(context, 'gpu_training', RUN_SET, 'checkpoints, evaluations and predictions against the CPU')


def whole_conformance(context):
    all_of(context, (tests, 'gpu_training', f'*-{SMALL_SET}:{RUN_SET}', 'training against the serial run, the rest'),
           (tests, 'gpu_graphs', f'*-{GRAPH_SET}', 'steps as CUDA graphs, the rest'))


def nccl(context):
    context.pipewright('run', '--schedule', '1f1b', '-p', '8', '-m', '16', '--transport', 'nccl', '--dry-run',
                       '--json', out='calls.json')
    if context.rehearsal:
        raise NotTaken('a rehearsal has no GPU for NCCL')
    tests(context, 'gpu_nccl', '*', 'NCCL with one rank')


def sanitize(context, tool):
    found = shutil.which('compute-sanitizer', path=context.runner.environment['PATH'])
    if found is None:
        raise NotTaken('compute-sanitizer is not here')
    all_of(context, *((_sanitized, [found, '--tool', tool, '--error-exitcode', '1'], program, chosen)
                      for program, chosen in (('gpu_kernels', '*'), ('gpu_training', SANITIZED_SET),
                                              ('gpu_graphs', GRAPH_SET))))


def _sanitized(context, tool, program, chosen):
    context.runner.run([*tool, context.program(program), f'--gtest_filter={chosen}'], context.log)


# --- Model FLOP/s ---

def block_flops(shape, samples):
    """Of F, I and W of one block with ffn = 4 hidden: 2 for each multiply-add of its products, attention in full
    (PaLM, arXiv:2204.02311, appendix B: 6 N + 12 L H Q T a token)."""
    tokens = samples * shape.sequence
    return tokens * (72 * shape.hidden ** 2 + 12 * shape.sequence * shape.hidden)


def block(context):
    all_of(context, *((_block, precision) for precision in PRECISIONS))


def _block(context, precision):
    shape = context.shape(BLOCK)
    file = write_job(context, shape, 1, BLOCK_SAMPLES, '1f1b', 2, precision)
    out = context.path(f'{precision}.profile.json')
    context.pipewright('profile', file, '--sizes', str(BLOCK_SAMPLES), '--ranks', '1', '--precision', precision,
                       '--budget', '0.2s' if context.rehearsal else '3s', '-o', out)
    layer = context.read(f'{precision}.profile.json')['sizes'][0]['layers'][1]  # behind the embedding
    seconds = (layer['f_ns'] + layer['i_ns'] + layer['w_ns']) * 1e-9
    tflops = block_flops(shape, BLOCK_SAMPLES) / seconds * 1e-12
    context.figure(f'one block, {precision}: TFLOP/s of F, I and W', tflops)
    peak = machine.peak_tflops(context.device, precision)
    title = f'one block, {precision}: MFU, of {peak} TFLOP/s (data sheet)'
    context.figure(title if peak else f'one block, {precision}: MFU (no data sheet for it)', peak and tflops / peak)


def rates(context):
    side = ['32'] if context.rehearsal else []
    context.runner.run([context.program('bench_gpu_rates'), context.path('rates.json'), *side], context.log,
                       context.path('rates.txt'))
    found = context.read('rates.json')
    for precision, flops in zip(('fp32', 'tf32', 'bf16'), found['peak_flops']):
        context.figure(f'products, whole GPU, {precision}: TFLOP/s', flops * 1e-12)
    context.figure('copies: TB/s read and written', found['copy_bytes_per_second'] * 1e-12)
    one_by_one, together = found['experts_flops']
    if together:
        context.figure('products of 8 experts in one launch: rate, times that of one by one', together / one_by_one)
    for row in found['partitions']:
        precision = ('fp32', 'tf32', 'bf16')[row['precision']]
        context.figure(f'{row["partitions"]} partitions, {precision}: of their share of the GPU\'s rate',
                       row['share'], '>=', 0.9)


# --- Pipelines on partitions ---

def pipeline(context, shape, ranks, precision, title):
    """Profiled and planned from that: what the host needs, what lies between actions, memory, and the step foretold
    beside the one measured."""
    file = write_job(context, context.shape(shape), ranks, 4 * ranks, '1f1b', 6, precision)
    plan_by_profile(context, file, 1, ranks, precision)
    ran = run_plan(context, 'plan.json', 'run', '--device', 'cuda', '--no-cuda-graph', '--precision', precision)
    trace, foretold = context.path('run.trace.json.gz'), context.path('foretold.trace.json.gz')
    step_ns = ran['steps'][-1]['step_ns']
    context.figure(f'{title}: host enqueues, share of a step', max(ran['enqueued_ns']) / step_ns)
    gap_figure(context, title, ran, 5000)
    memory_figure(context, title, ran)
    context.pipewright('simulate', context.path('plan.json'), '--trace', foretold)
    context.pipewright('compare', foretold, trace, '--json', out='compare.json')
    context.figure(f'{title}: step, foretold against measured, %',
                   abs(context.read('compare.json')['step']['error_percent']), '<=', 3)


def gap_figure(context, title, ran, most_ns):
    context.figure(f'{title}: gap between actions, ns, median', ran.get('action_gap_ns', {}).get('median'), '<=',
                   most_ns)


def graph(context, ranks, precision):
    """Steps as one CUDA graph: with two ranks their bits, and what lies between actions then."""
    bits = [(tests, 'gpu_graphs', GRAPH_SET, 'steps as CUDA graphs against the serial run')] if ranks == 2 else []
    all_of(context, *bits, (_replayed, ranks, precision), (_recorded, ranks, precision))


def _replayed(context, ranks, precision):
    file = write_job(context, context.shape(PIPELINE), ranks, 4 * ranks, '1f1b', 6)
    context.pipewright('tune', file, '-o', context.path('plan.json'))
    ran = run_plan(context, 'plan.json', 'run', '--device', 'cuda', '--cuda-graph', '--precision', precision)
    gap_figure(context, f'{ranks} partitions, {precision}, CUDA graph', ran, 2000)
    context.figure(f'{ranks} partitions, {precision}, CUDA graph: host enqueues, share of a step',
                   max(ran['enqueued_ns']) / ran['steps'][-1]['step_ns'], '<=', 0.05)
    context.figure(f'{ranks} partitions, {precision}, CUDA graph: step, ms', ran['steps'][-1]['step_ns'] * 1e-6)


def _recorded(context, ranks, precision):
    """The plan of _replayed() once more, with its kernels: whose they are, and how far the two clocks are apart."""
    ran = run_plan(context, 'plan.json', 'recorded', '--device', 'cuda', '--cuda-graph', '--precision', precision,
                   '--trace-kernels')
    title, work = f'{ranks} partitions, {precision}, CUDA graph, recorded', ran['gpu_work']
    context.figure(f'{title}: kernels of no rank, or dropped', work['strays'] + work['dropped'], '<=', 0)
    context.figure(f'{title}: actions at work, share of their time', work['share_at_work'])
    context.figure(f'{title}: a kernel outside of its action, us at most', work['apart_ns'] * 1e-3)
    context.figure(f'{title}: step, ms', ran['steps'][-1]['step_ns'] * 1e-6)


# --- Schedules ---

def _synchronous(context):
    context.pipewright('schedules', 'list', '--json', out='schedules.json')
    listed = context.read('schedules.json')['schedules']
    return [one['name'] for one in listed if not one['asynchronous'] and one['name'] != 'auto']


def _many_schedules(context, names, ranks, *flags):
    """Those that can be made for so many ranks are run, each with its trace."""
    ran = wrong = unmade = 0
    for name in names:
        file = write_job(context, context.shape(MANY), ranks, 2 * ranks, name, 4)
        try:
            context.pipewright('tune', file, '-o', context.path(f'{name}.plan.json'))
        except Failed:
            unmade += 1
            continue
        try:
            run_plan(context, f'{name}.plan.json', name, *flags)
            ran += 1
        except Failed:
            wrong += 1
        finally:
            context.record['why'] = f'{ran} schedules ran, {wrong} failed, {unmade} have no plan for it'
    context.figure(f'schedules on {ranks} ranks that failed, of {ran + wrong}', wrong, '<=', 0)
    if ran == 0:
        raise Failed('no schedule ran')


def schedules(context, ranks):
    _many_schedules(context, _synchronous(context), ranks, '--device', 'cuda', '--precision', 'bf16')


def several_gpus(context):
    """A GPU a rank, messages by NCCL."""
    context.pipewright('doctor', '--json', out='doctor.json')
    gpus = min(8, len(context.read('doctor.json')['gpu']['gpus']))
    if gpus < 2:
        raise NotTaken('one GPU: NCCL has a rank a GPU')
    all_of(context, (_many_schedules, ('gpipe', '1f1b', 'interleaved', 'zbv'), gpus, '--transport', 'nccl', '--verify'),
           (_graphs_over_nccl,))


def _graphs_over_nccl(context):
    """Two GPUs that divide layers: steps as graphs with NCCL's calls in them, beside steps without."""
    # Not of 16 bits: it is planned without a profile, and has no rates of these.
    job = write_job(context, context.shape(PIPELINE), 2, 4, '1f1b', 6)
    wanted = context.read('job.json')
    wanted['strategy'].update({'pp_degree': 1, 'mp_degree': 2})
    with open(job, 'w', encoding='utf-8') as file:
        json.dump(wanted, file, indent=1)
    context.pipewright('tune', job, '-o', context.path('divided.plan.json'))
    took = {}
    for flag in ('--no-cuda-graph', '--cuda-graph'):
        ran = run_plan(context, 'divided.plan.json', f'divided{flag}', '--device', 'cuda', '--transport', 'nccl',
                       '--precision', 'bf16', '--verify', flag)
        took[flag] = ran['steps'][-1]['step_ns']
    context.figure('two GPUs, tp 2, over NCCL: step as a graph, of a step without',
                   took['--cuda-graph'] / took['--no-cuda-graph'])


# --- The order ---

STEPS = [
    Step('conformance', 50, 'kernels and a small set of trainings against the CPU', small_conformance, ()),
    Step('block', 50, 'one block of a transformer: MFU in each precision', block, ()),
    *(Step(f'partitions-{n}-bf16', 40, f'a pipeline on {n} partitions of the SMs', pipeline,
           (PIPELINE, n, 'bf16', f'{n} partitions, bf16'))
      for n in (2, 4)),
    Step('graph-2', 35, 'a step as one CUDA graph, 2 partitions', graph, (2, 'bf16')),
    Step('gpt', 60, 'a GPT of 1.3e9 parameters on the whole GPU: MFU', gpt.gpt, (GPT,)),
    Step('kernels', 75, 'a step of it, kernel by kernel', gpt.kernels, (GPT,)),
    Step('pytorch', 60, 'the same GPT in PyTorch', gpt.pytorch, (GPT,)),
    Step('rates', 30, 'products and copies: the whole GPU, 2, 4 and 8 partitions', rates, ()),
    Step('nccl', 25, 'NCCL with one rank; its calls', nccl, ()),
    Step('runs', 40, 'checkpoints, evaluations and predictions against the CPU', runs, ()),
    Step('partitions-2-tf32', 35, 'the same pipeline', pipeline, (PIPELINE, 2, 'tf32', '2 partitions, tf32')),
    Step('conformance-rest', 80, 'all other trainings and graphs against the CPU', whole_conformance, ()),
    *(Step(f'partitions-{n}-{precision}', 35, 'the same pipeline', pipeline,
           (PIPELINE, n, precision, f'{n} partitions, {precision}'))
      for n, precision in ((4, 'tf32'), (2, 'fp32'), (4, 'fp32'))),
    Step('graph-4', 30, 'a step as one CUDA graph, 4 partitions', graph, (4, 'bf16')),
    *(Step(f'schedules-{n}', 75, f'every synchronous schedule on {n} partitions', schedules, (n,)) for n in (2, 4, 8)),
    Step('billion-2', 60, 'a billion parameters on 2 partitions', pipeline,
         (BILLION, 2, 'bf16', 'a billion parameters, 2 partitions')),
    Step('memcheck', 75, 'compute-sanitizer: accesses', sanitize, ('memcheck',)),
    Step('racecheck', 75, 'compute-sanitizer: races', sanitize, ('racecheck',)),
    Step('several-gpus', 60, 'a GPU a rank, where there are several', several_gpus, ()),
]
