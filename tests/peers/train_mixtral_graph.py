"""docs/examples/small-mixtral.json trained by `pipewright spmd run`, as it is divided there and on one rank, and by the
Mixtral of `transformers` (PyPI), from the same weights on the same batch: the losses of three steps of gradient descent
have to agree to five digits. Exit status 77 (skipped) where torch, transformers or safetensors is missing."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
STEPS = 3
LEARNING_RATE = 0.5
MOST_DIFFERENCE = 1e-5  # of a loss, relative
SEEDS = (1, 2, 3)


def model_there(torch, transformers, shapes, seed):
    torch.manual_seed(seed)
    tokens, heads, width = shapes['q_heads'][1:]
    experts, hidden, ffn = shapes['w_gate']
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
        hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=1, num_attention_heads=heads,
        num_key_value_heads=shapes['k_heads'][2], vocab_size=shapes['table'][0], max_position_embeddings=tokens,
        rms_norm_eps=1e-5, tie_word_embeddings=False, attn_implementation='eager', num_local_experts=experts,
        num_experts_per_tok=shapes['chosen'][2], initializer_range=0.3,
        rope_parameters={'rope_type': 'default', 'rope_theta': 10000.0})).float()
    assert width == hidden // heads
    return model


def values_of(torch, model, shapes, seed):
    """Under the names of the graph. Ours are [in][out], theirs [out][in]."""
    state = {name.removeprefix('model.').removeprefix('layers.0.'): value.detach() for name, value in model.state_dict().items()}
    gate, up = state['mlp.experts.gate_up_proj'].transpose(1, 2).chunk(2, dim=2)
    tokens, width = shapes['cos'][0], shapes['cos'][2]
    angles = torch.outer(torch.arange(tokens), 10000.0 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
    values = {
        'table': state['embed_tokens.weight'], 'head': state['lm_head.weight'].T,
        'norm1.gain': state['input_layernorm.weight'], 'norm2.gain': state['post_attention_layernorm.weight'],
        'norm3.gain': state['norm.weight'], 'w_router': state['mlp.gate.weight'].T, 'w_gate': gate, 'w_up': up,
        'w_down': state['mlp.experts.down_proj'].transpose(1, 2),
        'cos': angles.cos().unsqueeze(1), 'sin': angles.sin().unsqueeze(1),
    }
    values |= {f'w_{name}': state[f'self_attn.{name}_proj.weight'].T for name in 'qkvo'}
    draw = torch.Generator().manual_seed(seed)
    values |= {name: torch.randint(shapes['table'][0], shapes[name], generator=draw) for name in ('ids', 'labels')}
    return {name: value.contiguous().clone() for name, value in values.items()}


def train_there(torch, model, values):
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=values['ids']).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), values['labels'].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_here(command, graph, folder):
    result = subprocess.run(
        [command, 'spmd', 'run', str(graph), '--weights', 'values.safetensors', '--steps', str(STEPS),
         '--learning-rate', str(LEARNING_RATE), '--json'], cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f'spmd run ended with {result.returncode}:\n{result.stderr}{result.stdout}')
    document = json.loads(result.stdout)
    return document['losses'], document['serial_losses']


def main(command, graph):
    try:
        import torch
        import transformers
        from safetensors.torch import save_file
    except ImportError as error:
        print(f'skipped: {error}')
        return SKIPPED
    shapes = {name: tensor['shape'] for name, tensor in json.loads(graph.read_text())['tensors'].items()}
    failed = False
    for seed in SEEDS:
        model = model_there(torch, transformers, shapes, seed)
        with tempfile.TemporaryDirectory() as name:
            values = values_of(torch, model, shapes, seed)
            save_file(values, Path(name) / 'values.safetensors')
            divided, serial = train_here(command, graph, name)
        theirs = train_there(torch, model, values)
        worst = max(abs(a - b) / b for ours in (divided, serial) for a, b in zip(ours, theirs, strict=True))
        failed = failed or worst > MOST_DIFFERENCE
        print(f'seed {seed}: losses {theirs[0]:.6f} to {theirs[-1]:.6f}, apart by at most {worst:.1e}')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()))
