"""Jobs of real processes that train over gloo, for the tests of pipewright.torch; a module that imports this is skipped
where PyTorch 2.13 is missing."""

import json
import os
import tempfile
import unittest

try:
    import torch
    import torch.distributed.pipelining
    from torch.distributed.pipelining import PipelineStage, schedules
except ImportError as error:
    raise unittest.SkipTest(f"PyTorch is not installed for this Python ({error})") from error
if not torch.__version__.startswith("2.13."):
    raise unittest.SkipTest(f"PyTorch is {torch.__version__}, not 2.13")

from pipewright.torch.lists import stages_of  # noqa: E402 (after what may be missing)

LIMIT_S = 600  # of a job: one that hangs, not one beside others on two cores
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")


def _work(rank, ranks, folder, function, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks
    )
    result = function(rank, *arguments)
    torch.save(result, f"{folder}/result{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_job(ranks, function, *arguments):
    """What function(rank, *arguments) returns on each rank of a new gloo job. A failed rank fails the job."""
    with tempfile.TemporaryDirectory() as folder:
        job = torch.multiprocessing.spawn(_work, (ranks, folder, function, arguments), nprocs=ranks, join=False)
        waited = 0
        while not job.join(timeout=1):
            waited += 1
            if waited > LIMIT_S:
                for process in job.processes:
                    process.kill()
                raise AssertionError(f"the job did not end within {LIMIT_S} s")
        return [torch.load(os.path.join(folder, f"result{rank}"), weights_only=False) for rank in range(ranks)]


def assert_refusals(case, said, expected):
    """What was refused is what was to be, each in one sentence with these words."""
    case.assertEqual(set(said), set(expected))
    for what, words in expected.items():
        case.assertIn(words, said[what])
        case.assertNotIn("\n", said[what])


# A small GPT: an embedding, blocks, a head.

WIDTH, HEADS, WORDS, LENGTH = 16, 2, 19, 6
SAMPLES = 2  # of a micro-batch


class Embedding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens):
        return self.words(tokens) + self.places(torch.arange(LENGTH))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        samples, length, _ = x.shape
        q, k, v = (
            part.reshape(samples, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5).masked_fill(~seen, float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(samples, length, WIDTH)
        x = x + self.out(mixed)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def layers_of(blocks):
    """The same weights on every rank."""
    torch.manual_seed(22)
    head = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WORDS))
    return [Embedding(), *[Block() for _ in range(blocks)], head]


def batch_of(micro_batches):
    torch.manual_seed(7)
    size = (micro_batches * SAMPLES, LENGTH)
    return torch.randint(WORDS, size), torch.randint(WORDS, size)


def loss_fn(output, target):
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def unpipelined(layers, micro_batches):
    """Losses by micro-batch and gradients by layer, of one step without a pipeline."""
    model = torch.nn.Sequential(*layers)
    tokens, targets = batch_of(micro_batches)
    losses = [loss_fn(model(x), y) for x, y in zip(tokens.chunk(micro_batches), targets.chunk(micro_batches))]
    (sum(losses) / micro_batches).backward()
    return [loss.item() for loss in losses], [[p.grad for p in layer.parameters()] for layer in layers]


def stages_by_cut(layers, cut, stages, device="cpu"):
    """PipelineStages of the layers [cut[s], cut[s + 1])."""
    return [
        PipelineStage(torch.nn.Sequential(*layers[cut[s] : cut[s + 1]]), s, len(cut) - 1, torch.device(device))
        for s in stages
    ]


def even_cut(layers, stages):
    return [layers * s // stages for s in range(stages + 1)]


def step(pipeline, micro_batches):
    """One step of this rank; the losses of the last stage's rank, else none."""
    return step_on(pipeline, *batch_of(micro_batches))


def step_on(pipeline, tokens, targets, **named):
    own = {stage.stage_index for stage in stages_of(pipeline)}
    losses = []
    last = pipeline._num_stages - 1 in own
    pipeline.step(*((tokens,) if 0 in own else ()), target=targets if last else None, losses=losses, **named)
    return [loss.item() for loss in losses]


def difference(found, wanted):
    """The largest difference over the largest element; infinite where something is missing."""
    largest = max(w.abs().max().item() for layer in wanted for w in layer)
    pairs = [(f, w) for fs, ws in zip(found, wanted) for f, w in zip(fs, ws)]
    return max((f - w).abs().max().item() if f is not None else float("inf") for f, w in pairs) / largest


def traced(pipeline, micro_batches):
    """A step, and the actions that it ran, as the profiler saw them."""
    return traced_step(pipeline, *batch_of(micro_batches))


def traced_step(pipeline, tokens, targets):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        losses = step_on(pipeline, tokens, targets)
    slices = [event for event in profile.events() if event.name.startswith("PP:")]
    return losses, [event.name[3:] for event in sorted(slices, key=lambda event: event.time_range.start)]


def tensor_parallel_plan(folder):
    """The example's plan on four devices, two to each layer."""
    with open(os.path.join(EXAMPLES, "plan.json")) as file:
        plan = json.load(file)
    plan["mesh"] = {"shape": [2, 2], "dim_names": ["pp", "tp"], "devices": [0, 1, 2, 3]}
    plan["cluster"]["devices_per_node"] = 4
    del plan["cluster_fingerprint"]
    path = os.path.join(folder, "tp.json")
    with open(path, "w") as file:
        json.dump(plan, file)
    return path


__all__ = [
    "EXAMPLES",
    "PipelineStage",
    "batch_of",
    "difference",
    "even_cut",
    "layers_of",
    "loss_fn",
    "run_job",
    "schedules",
    "stages_by_cut",
    "step",
    "tensor_parallel_plan",
    "torch",
    "traced",
    "unpipelined",
]
