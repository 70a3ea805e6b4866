"""Models in Llama's style trained here and by the Llama, the Mixtral, the GLM-4.5 and the DeepSeek-V3 of `transformers`
(PyPI), from the same weights, which leave and come back as safetensors. GLM-4.5 chooses experts as DeepSeek-V3 does, and has Llama's attention.

Both take ten steps of plain gradient descent on the same samples, here cut into two stages; the losses
have to agree to five digits (those of the model: what a router adds to be minimised is in neither). Exit status 77 (skipped) where torch or transformers is missing.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
STEPS = 10
SAMPLES = 8  # all of them in each step, so that their order does not matter
LEARNING_RATE = 0.3
MOST_DIFFERENCE = 1e-5  # of a loss, relative

# What a router minimises besides is taken over a micro-batch here, over the batch there, and there over all blocks
# together: one block and one micro-batch.
SHAPES = [
    {'hidden': 48, 'layers': 3, 'heads': 4, 'kv_heads': 2, 'ffn': 40, 'vocabulary': 64, 'sequence': 16},
    {'hidden': 36, 'layers': 2, 'heads': 6, 'kv_heads': 1, 'ffn': 20, 'vocabulary': 50, 'sequence': 33,
     'rotary_base': 500000},
    {'hidden': 32, 'layers': 4, 'heads': 2, 'ffn': 88, 'vocabulary': 64, 'sequence': 8, 'tied_head': True},
    {'hidden': 48, 'layers': 3, 'heads': 4, 'kv_heads': 2, 'ffn': 24, 'vocabulary': 64, 'sequence': 16,
     'experts': 8, 'top_k': 2},
    {'hidden': 32, 'layers': 2, 'heads': 4, 'ffn': 20, 'vocabulary': 50, 'sequence': 33, 'experts': 5, 'top_k': 3},
    {'hidden': 40, 'layers': 1, 'heads': 4, 'ffn': 20, 'vocabulary': 50, 'sequence': 12, 'experts': 6, 'top_k': 2,
     'balance_loss': 0.5, 'z_loss': 0.1},
    {'hidden': 48, 'layers': 2, 'heads': 4, 'kv_heads': 2, 'ffn': 24, 'vocabulary': 64, 'sequence': 16,
     'experts': 8, 'top_k': 3, 'scoring': 'sigmoid', 'groups': 4, 'top_groups': 2, 'scaling': 2.5, 'shared_ffn': 24},
    {'hidden': 32, 'layers': 2, 'heads': 4, 'ffn': 16, 'vocabulary': 50, 'sequence': 20,
     'experts': 6, 'top_k': 2, 'scoring': 'sigmoid', 'normalised': False, 'shared_ffn': 32},
    {'hidden': 36, 'layers': 2, 'heads': 5, 'ffn': 40, 'vocabulary': 50, 'sequence': 19,
     'latent_attention': {'key_value_rank': 12, 'plain': 10, 'rotary': 6, 'value': 14}},
    # deepseek-tiny, with a bias that moves fast enough to matter in ten steps.
    {'hidden': 64, 'layers': 4, 'heads': 4, 'ffn': 48, 'vocabulary': 256, 'sequence': 64,
     'latent_attention': {'query_rank': 32, 'key_value_rank': 16, 'plain': 16, 'rotary': 8, 'value': 16},
     'experts': 8, 'top_k': 2, 'scoring': 'sigmoid', 'groups': 4, 'top_groups': 2, 'scaling': 2.5,
     'balance_rate': 0.01, 'shared_ffn': 48, 'dense_layers': 1, 'dense_ffn': 176},
]


def write_samples(numpy, folder, shape):
    draw = numpy.random.default_rng(5)
    tokens = draw.integers(0, shape['vocabulary'], (SAMPLES, shape['sequence'] + 1))
    numpy.save(folder / 'x.npy', tokens[:, :-1])
    numpy.save(folder / 'y.npy', tokens[:, 1:])
    return tokens


def write_job(folder, shape):
    micro_batches = 1 if 'balance_loss' in shape else 4
    job = {
        'schema': 'pipewright.job/1',
        'model': {'transformer': {'style': 'llama', **shape}},
        'cluster': {'preset': 'local-cpu', 'devices': 2},
        'global_batch': SAMPLES,
        'strategy': {'pp_degree': 2, 'accumulate_steps': micro_batches, 'schedule_mode': '1f1b'},
        'training': {'steps': 1, 'optimizer': 'sgd', 'learning_rate': LEARNING_RATE,
                     'data': {'inputs': str(folder / 'x.npy'), 'labels': str(folder / 'y.npy')}},
    }
    (folder / 'job.json').write_text(json.dumps(job))


def call(command, folder, *words):
    result = subprocess.run([command, *words], cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f'{" ".join(words)} ended with {result.returncode}:\n{result.stderr}')
    return result.stdout


def train_here(command, folder):
    """The weights after one step, and the losses of the ten that follow."""
    call(command, folder, 'tune', 'job.json', '-q', '-o', 'plan.json')
    call(command, folder, 'run', 'plan.json', '-q', '--save-checkpoint', 'saved')
    continued = call(command, folder, 'run', 'plan.json', '-q', '--json', '--load-checkpoint', 'saved',
                     '--steps', str(1 + STEPS))
    return folder / 'saved' / 'step-00000001', [step['loss'] for step in json.loads(continued)['steps']]


def weights_in(numpy, checkpoint):
    """By parameter, in one dimension, as the checkpoint's files have them."""
    weights = {}
    for part in json.loads((checkpoint / 'checkpoint.json').read_text())['parts']:
        floats = numpy.fromfile(checkpoint / part['file'], dtype='<f4')
        for array in part['arrays']:
            if array['slot'] != 'value':
                continue
            first = array['offset_bytes'] // 4
            whole = weights.setdefault(array['parameter'], numpy.empty(array['elements'], dtype='f4'))
            whole[array['first']:array['first'] + array['count']] = floats[first:first + array['count']]
    return weights


def exported(command, numpy, folder, checkpoint):
    """The same from a safetensors file, bit by bit; saved again, as PyTorch would, they come back as they were."""
    from safetensors.numpy import load_file, save_file
    call(command, folder, 'checkpoint', 'export', 'saved', '-q', '-o', 'model.safetensors')
    weights = load_file(folder / 'model.safetensors')
    raw = weights_in(numpy, checkpoint)
    if {name: array.tobytes() for name, array in weights.items()} != {name: array.tobytes() for name, array in raw.items()}:
        sys.exit('an exported array is not that of the checkpoint')
    save_file(weights, folder / 'again.safetensors')
    call(command, folder, 'checkpoint', 'import', 'again.safetensors', '-q', '--like', 'saved', '-o', 'back')
    back = weights_in(numpy, folder / 'back' / checkpoint.name)
    if any(back[name].tobytes() != array.tobytes() for name, array in raw.items()):
        sys.exit('an imported array is not that of the file')
    return weights


def matrix(weights, name, rows):
    """Ours are [in][out], theirs [out][in]."""
    return weights[name].reshape(rows, -1).T


def is_deepseek(shape):
    return 'latent_attention' in shape


def is_glm(shape):
    return shape.get('scoring') == 'sigmoid' and not is_deepseek(shape)


def matrices(weights, name, shape, rows):
    """Those of all experts."""
    return weights[name].reshape(shape['experts'], rows, -1).transpose(0, 2, 1)


def gated_of(numpy, weights, hidden, ffn, gate_and_up, down, theirs):
    gate, up = numpy.split(matrix(weights, f'{gate_and_up}/weight', hidden), 2)
    return {f'{theirs}.gate_proj.weight': gate, f'{theirs}.up_proj.weight': up,
            f'{theirs}.down_proj.weight': matrix(weights, f'{down}/weight', ffn)}


def has_experts(shape, block):
    return 'experts' in shape and block >= shape.get('dense_layers', 0)


def feed_forward_of(numpy, shape, weights, block, ours, theirs):
    hidden = shape['hidden']
    ffn = shape['dense_ffn'] if block < shape.get('dense_layers', 0) else shape['ffn']
    if not has_experts(shape, block):
        return gated_of(numpy, weights, hidden, ffn, f'{ours}/1.gate and up', f'{ours}/3.down', theirs)
    layer = f'{ours}/1.experts'
    state = {}
    if 'shared_ffn' in shape:
        state = gated_of(numpy, weights, hidden, shape['shared_ffn'], f'{layer}/shared/0.gate and up',
                         f'{layer}/shared/2.down', f'{theirs}.shared_experts')
    if shape.get('scoring') == 'sigmoid':
        state[f'{theirs}.gate.e_score_correction_bias'] = weights.get(
            f'{layer}/balance_bias', numpy.zeros(shape['experts'], dtype='f4'))
    return state | {f'{theirs}.gate.weight': matrix(weights, f'{layer}/router_weight', hidden),
            f'{theirs}.experts.gate_up_proj': matrices(weights, f'{layer}/experts/0.gate and up/weight', shape, hidden),
            f'{theirs}.experts.down_proj': matrices(weights, f'{layer}/experts/2.down/weight', shape, ffn)}


def plain_attention_of(shape, weights, ours, theirs):
    hidden = shape['hidden']
    keys = hidden // shape['heads'] * shape.get('kv_heads', shape['heads'])
    qkv = matrix(weights, f'{ours}/qkv_weight', hidden)
    return {f'{theirs}.q_proj.weight': qkv[:hidden], f'{theirs}.k_proj.weight': qkv[hidden:hidden + keys],
            f'{theirs}.v_proj.weight': qkv[hidden + keys:],
            f'{theirs}.o_proj.weight': matrix(weights, f'{ours}/output_weight', hidden)}


def latent_attention_of(numpy, shape, weights, ours, theirs):
    """There the way down of keys and values and the rotary key are one matrix."""
    hidden, widths = shape['hidden'], shape['latent_attention']
    values = f'{ours}/keys and values'
    down = matrix(weights, f'{values}/0.down/weight', hidden)
    rotary = matrix(weights, f'{ours}/rotary key/weight', hidden)
    state = {f'{theirs}.kv_a_proj_with_mqa.weight': numpy.concatenate([down, rotary]),
             f'{theirs}.kv_a_layernorm.weight': weights[f'{values}/1.norm/scale'],
             f'{theirs}.kv_b_proj.weight': matrix(weights, f'{values}/2.up/weight', widths['key_value_rank']),
             f'{theirs}.o_proj.weight': matrix(weights, f'{ours}/output_weight', shape['heads'] * widths['value'])}
    if 'query_rank' not in widths:
        return state | {f'{theirs}.q_proj.weight': matrix(weights, f'{ours}/queries/0.up/weight', hidden)}
    return state | {f'{theirs}.q_a_proj.weight': matrix(weights, f'{ours}/queries/0.down/weight', hidden),
                    f'{theirs}.q_a_layernorm.weight': weights[f'{ours}/queries/1.norm/scale'],
                    f'{theirs}.q_b_proj.weight': matrix(weights, f'{ours}/queries/2.up/weight', widths['query_rank'])}


def attention_of(numpy, shape, weights, ours, theirs):
    if is_deepseek(shape):
        return latent_attention_of(numpy, shape, weights, ours, theirs)
    return plain_attention_of(shape, weights, ours, theirs)


def state_of(torch, numpy, shape, weights):
    """Under the names that transformers gives them."""
    hidden = shape['hidden']
    last = shape['layers'] + 1
    tokens = weights['0.embedding/tokens'].reshape(-1, hidden)
    state = {'model.embed_tokens.weight': tokens, 'model.norm.weight': weights[f'{last}.head/0.norm/scale']}
    state['lm_head.weight'] = tokens if shape.get('tied_head') else matrix(weights, f'{last}.head/1.logits/weight', hidden)
    for block in range(shape['layers']):
        ours = f'{block + 1}.block {block}'
        theirs = f'model.layers.{block}'
        attend, feed = f'{ours}/0.attend', f'{ours}/1.feed forward'
        state |= {
            f'{theirs}.input_layernorm.weight': weights[f'{attend}/0.norm/scale'],
            f'{theirs}.post_attention_layernorm.weight': weights[f'{feed}/0.norm/scale'],
        }
        state |= attention_of(numpy, shape, weights, f'{attend}/1.attention', f'{theirs}.self_attn')
        state |= feed_forward_of(numpy, shape, weights, block, feed, f'{theirs}.mlp')
    return {name: torch.tensor(numpy.ascontiguousarray(value)) for name, value in state.items()}


def deepseek_there(transformers, shape, widths):
    latent = shape['latent_attention']
    dense = shape.get('dense_layers', shape['layers'] if 'experts' not in shape else 0)
    widths['intermediate_size'] = shape.get('dense_ffn', shape['ffn'])
    model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **widths, q_lora_rank=latent.get('query_rank'), kv_lora_rank=latent['key_value_rank'],
        qk_nope_head_dim=latent['plain'], qk_rope_head_dim=latent['rotary'], v_head_dim=latent['value'],
        moe_intermediate_size=shape['ffn'], n_routed_experts=shape.get('experts', 2),
        num_experts_per_tok=shape.get('top_k', 1), n_group=shape.get('groups', 1),
        topk_group=shape.get('top_groups', 1), routed_scaling_factor=shape.get('scaling', 1.0),
        n_shared_experts=shape.get('shared_ffn', shape['ffn']) // shape['ffn'], first_k_dense_replace=dense,
        num_mtp_layers=0))
    # The norms between narrow layers add 1e-6 there, whatever the configuration says.
    for module in model.modules():
        if hasattr(module, 'variance_epsilon'):
            module.variance_epsilon = widths['rms_norm_eps']
    return model


def model_there(transformers, shape):
    widths = dict(
        hidden_size=shape['hidden'], intermediate_size=shape['ffn'], num_hidden_layers=shape['layers'],
        num_attention_heads=shape['heads'], num_key_value_heads=shape.get('kv_heads', shape['heads']),
        vocab_size=shape['vocabulary'], max_position_embeddings=shape['sequence'], rms_norm_eps=1e-5,
        tie_word_embeddings=shape.get('tied_head', False), attn_implementation='eager',
        rope_parameters={'rope_type': 'default', 'rope_theta': float(shape.get('rotary_base', 10000))})
    if is_deepseek(shape):
        return deepseek_there(transformers, shape, widths)
    if is_glm(shape):
        widths['rope_parameters']['partial_rotary_factor'] = 1.0
        return transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(
            **widths, head_dim=shape['hidden'] // shape['heads'], moe_intermediate_size=shape['ffn'],
            n_routed_experts=shape['experts'], num_experts_per_tok=shape['top_k'], n_group=shape.get('groups', 1),
            topk_group=shape.get('top_groups', 1), routed_scaling_factor=shape.get('scaling', 1.0),
            norm_topk_prob=shape.get('normalised', True), n_shared_experts=shape['shared_ffn'] // shape['ffn'],
            first_k_dense_replace=0, num_nextn_predict_layers=0))
    if 'experts' not in shape:
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**widths))
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **widths, num_local_experts=shape['experts'], num_experts_per_tok=shape['top_k'], output_router_logits=True))


def minimised_besides(torch, shape, output):
    """By the routers. There an expert's share is of the rows, here of the rows' top_k choices."""
    if 'balance_loss' not in shape:
        return 0
    z = torch.logsumexp(output.router_logits[0], dim=-1).square().mean()
    return shape['balance_loss'] / shape['top_k'] * output.aux_loss + shape['z_loss'] * z


def watch_routers(torch, model, shape):
    """Calls that move the routers' biases by what they chose since the last call."""
    def mover(gate):
        chosen = []
        gate.register_forward_hook(lambda module, inputs, outputs: chosen.append(outputs[2]))

        def move():
            counts = torch.bincount(torch.cat(chosen).flatten(), minlength=shape['experts']).float()
            gate.e_score_correction_bias += shape['balance_rate'] * torch.sign(counts.mean() - counts)
            chosen.clear()
        return move
    return [mover(module) for module in model.modules() if hasattr(module, 'e_score_correction_bias')]


def train_there(torch, transformers, shape, state, tokens):
    model = model_there(transformers, shape).float()
    model.load_state_dict(state)
    movers = watch_routers(torch, model, shape) if 'balance_rate' in shape else []
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    tokens = torch.tensor(tokens)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = model(input_ids=tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), tokens[:, 1:].flatten())
        (loss + minimised_besides(torch, shape, output)).backward()
        optimizer.step()
        for move in movers:
            move()
        losses.append(loss.item())
    return losses


def main(command):
    try:
        import numpy
        import torch
        import transformers
    except ImportError as error:
        print(f'skipped: {error}')
        return SKIPPED
    failed = False
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            tokens = write_samples(numpy, folder, shape)
            write_job(folder, shape)
            checkpoint, ours = train_here(command, folder)
            state = state_of(torch, numpy, shape, exported(command, numpy, folder, checkpoint))
            theirs = train_there(torch, transformers, shape, state, tokens)
        worst = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
        failed = failed or len(ours) != STEPS or worst > MOST_DIFFERENCE
        print(f'{shape}: losses {theirs[0]:.6f} to {theirs[-1]:.6f}, apart by at most {worst:.1e}')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(str(Path(sys.argv[1]).resolve())))
