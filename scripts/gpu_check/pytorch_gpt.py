"""Steps of a GPT in PyTorch: layer norms before attention and MLP, learned positions, an own head; weights float32,
multiplied as bfloat16 under autocast; the fused AdamW.
    pytorch_gpt.py SHAPE_JSON MICRO_BATCHES SAMPLES OUT.json"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        samples, sequence, hidden = x.shape
        qkv = self.qkv(self.before_attention(x)).view(samples, sequence, 3, self.heads, hidden // self.heads)
        query, key, value = (one.transpose(1, 2) for one in qkv.unbind(2))
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(context.transpose(1, 2).reshape(samples, sequence, hidden))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x)), approximate='tanh'))


class Gpt(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(shape['vocabulary'], shape['hidden'])
        self.positions = nn.Parameter(torch.zeros(shape['sequence'], shape['hidden']))
        self.blocks = nn.ModuleList(Block(shape['hidden'], shape['heads']) for _ in range(shape['layers']))
        self.norm = nn.LayerNorm(shape['hidden'])
        self.head = nn.Linear(shape['hidden'], shape['vocabulary'], bias=False)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def median_step_s(model, optimizer, batches, steps):
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for ids, labels in batches:
            with torch.autocast('cuda', torch.bfloat16):
                loss = model(ids, labels) / len(batches)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times[2:])[len(times[2:]) // 2]


def main(shape, micro_batches, samples, out):
    shape = json.loads(shape)
    torch.manual_seed(1)
    model = Gpt(shape).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    drawn = torch.randint(shape['vocabulary'], (int(micro_batches), int(samples), shape['sequence'] + 1)).cuda()
    batches = [(one[:, :-1].contiguous(), one[:, 1:].contiguous()) for one in drawn]
    step_s = {'eager': median_step_s(model, optimizer, batches, 7)}
    with open(out, 'w', encoding='utf-8') as file:
        json.dump({'version': torch.__version__, 'step_s': step_s}, file)


if __name__ == '__main__':
    main(*sys.argv[1:])
