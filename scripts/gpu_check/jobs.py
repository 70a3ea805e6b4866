"""Jobs of GPTs on one GPU, their plans, and what a run says of its plan."""
import json
import os


def job(shape, ranks, batch, schedule, steps, precision='fp32', micro_batch=1):
    return {
        'schema': 'pipewright.job/1',
        'model': {'schema': 'pipewright.model/1', 'name': f'gpt-{shape.hidden}-{shape.layers}',
                  'bytes_per_element': 2 if precision == 'bf16' else 4,
                  'transformer': {'hidden': shape.hidden, 'layers': shape.layers, 'heads': shape.heads,
                                  'vocabulary': shape.vocabulary, 'sequence': shape.sequence}},
        'cluster': {'schema': 'pipewright.cluster/1', 'name': 'one-gpu', 'nodes': 1, 'devices_per_node': ranks,
                    'device': {'kind': 'cuda', 'model': 'one partition', 'memory_bytes': 130000000000,
                               'peak_flops': 6e13},
                    'inside': {'latency_ns': 5000, 'bytes_per_second': 1e12, 'sharing': 'none'}},
        'global_batch': batch,
        'strategy': {'dp_degree': 1, 'pp_degree': ranks, 'accumulate_steps': batch // micro_batch,
                     'micro_batch_size': micro_batch, 'schedule_mode': schedule},
        'training': {'steps': steps, 'seed': 1}}


def write_job(context, *what):
    with open(context.path('job.json'), 'w', encoding='utf-8') as file:
        json.dump(job(*what), file, indent=1)
    return context.path('job.json')


def run_plan(context, plan, name, *flags):
    """name.json and name.trace.json.gz."""
    context.pipewright('run', context.path(plan), '--data', os.path.join(context.source, 'LICENSE'), '--json',
                       '--trace', context.path(f'{name}.trace.json.gz'), *flags, out=f'{name}.json')
    return context.read(f'{name}.json')


def plan_by_profile(context, file, size, ranks, precision):
    """plan.json, by what profile.json says of micro-batches of that size."""
    context.pipewright('profile', file, '--sizes', str(size), '--ranks', str(ranks), '--precision', precision,
                       '--budget', '0.2s' if context.rehearsal else '3s', '-o', context.path('profile.json'))
    context.pipewright('tune', file, '--profile', context.path('profile.json'), '-o', context.path('plan.json'))


def memory_figure(context, title, ran):
    """A plan speaks of tensors: not of libraries' own memory, nor of blocks that are kept and not used."""
    measured = max(peak - other for peak, other in zip(ran['peak_bytes'], ran['unplanned_bytes']))
    predicted = max(ran['predicted_peak_bytes'])
    context.figure(f'{title}: fullest rank\'s memory, foretold against measured',
                   max(predicted, measured) / min(predicted, measured) - 1, '<=', 0.05)
