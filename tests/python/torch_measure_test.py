"""measure(): a profile whose sums are those of whole steps measured directly, ordered as the work is; the loop from a model
to its trained steps; and what cannot be measured. No test hangs on how long anything takes."""

import copy
import json
import os
import tempfile
import time
import unittest

import pipewright
import pipewright.torch
from pipewright.torch.counting import Alive, watching_memory
from torch_jobs import (
    LENGTH,
    WIDTH,
    WORDS,
    PipelineStage,
    assert_refusals,
    difference,
    loss_fn,
    run_job,
    step_on,
    torch,
    traced_step,
)
from torch_models import Gpt, gpt_batch

nn = torch.nn
REPEATS = 3


class FixedLength(Gpt):
    """Its positions are a number's."""

    def __init__(self):
        super().__init__(blocks=1)

    def forward(self, tokens):
        return self.head(self.blocks[0](self.words(tokens) + self.places(torch.arange(LENGTH))))


class Wide(nn.Module):
    """Layers of very different size."""

    def __init__(self, widths):
        super().__init__()
        self.steps = nn.ModuleList([nn.Linear(256, width) for width in widths])
        self.back = nn.ModuleList([nn.Linear(width, 256) for width in widths])

    def forward(self, x):
        for step, back in zip(self.steps, self.back):
            x = x + torch.tanh(back(torch.relu(step(x))))
        return x


def mse(output, target):
    return nn.functional.mse_loss(output, target)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def wide_batch(samples):
    torch.manual_seed(samples)
    return torch.randn(samples, 256), torch.randn(samples, 256)


def whole_step_ns(model, inputs, targets, repeats):
    """The median of forward and backward of the model by itself."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter_ns()
        mse(model(inputs), targets).backward()
        times.append(time.perf_counter_ns() - began)
        model.zero_grad()
    return sorted(times)[len(times) // 2]


def measured(rank, repeats):
    """On each rank at once."""
    model = Gpt(blocks=3)
    captured = pipewright.torch.capture(model, gpt_batch(2)[0], name="gpt")
    return pipewright.torch.measure(captured, [gpt_batch(2), gpt_batch(4)], loss_fn, repeats=repeats)


def held(rank, name, micro_batches):
    """The most bytes of activations that this rank holds in a step, as the plan says and as PyTorch's operators make and
    drop them."""
    model = Gpt(blocks=6)
    captured = pipewright.torch.capture(model, gpt_batch(8)[0], name="gpt")
    order = pipewright.schedule(name, pp=2, micro_batches=micro_batches)
    half = len(captured.layers) // 2
    cut = [(0, half), (half, len(captured.layers))]
    shape = (8 * micro_batches, LENGTH, WORDS)
    profile = pipewright.torch.measure(captured, [(gpt_batch(8)[0], torch.randn(8, LENGTH, WORDS))], mse, repeats=1)
    plan = pipewright.plan_of_order(order, captured.model, profile, cut, 8)
    first, end = cut[rank]
    module = nn.Sequential(*[layer for _, layer in captured.layers[first:end]])
    stage = PipelineStage(module, rank, 2, torch.device("cpu"), group=torch.distributed.group.WORLD)
    pipeline = pipewright.torch.schedule(order, [stage], mse)
    inputs = (gpt_batch(8 * micro_batches)[0],) if rank == 0 else ()
    target = torch.randn(shape) if rank == 1 else None
    pipeline.step(*inputs, target=target, losses=[])
    state = [*module.parameters(), *[one.grad for one in module.parameters()], *module.buffers()]
    alive = Alive([*inputs, *([] if target is None else [target]), *state])
    with watching_memory(alive):
        pipeline.step(*inputs, target=target, losses=[])
    weights = sum(one.numel() * one.element_size() for one in module.parameters())
    return pipewright.simulate(plan).peak_bytes[rank] - 2 * weights, alive.most


class Measure(unittest.TestCase):
    def test_a_step_holds_what_the_plan_says(self):
        for name, micro_batches in (("gpipe", 6), ("1f1b", 6)):
            for rank, (planned, found) in enumerate(run_job(2, held, name, micro_batches)):
                with self.subTest(schedule=name, rank=rank):
                    # PyTorch keeps what it has sent, and the last rank the outputs, to the end of the step.
                    until_the_end = micro_batches * 8 * LENGTH * (WIDTH + rank * WORDS) * 4
                    self.assertLess(planned / found, 1.05)
                    self.assertGreater(planned / found, 0.95 - until_the_end / found)

    def test_layers_are_ordered_as_their_work_is_and_add_up_to_the_step(self):
        torch.manual_seed(1)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(256, w), nn.ReLU(), nn.Linear(w, 256)) for w in (16, 4096, 512)])
        before = [parameter.clone() for parameter in model.parameters()]
        inputs, targets = wide_batch(64)
        steps = [whole_step_ns(copy.deepcopy(model), inputs, targets, 9)]  # other programs may come between
        profile = pipewright.torch.measure(
            model, [wide_batch(64), wide_batch(16)], mse, repeats=REPEATS, optimizer=sgd, name="wide"
        )
        for parameter, value in zip(model.parameters(), before):
            self.assertTrue(torch.equal(parameter, value))
            self.assertIsNone(parameter.grad)
        self.assertEqual([size["micro_batch_size"] for size in profile["sizes"]], [16, 64])
        layers = profile["sizes"][1]["layers"]
        for key in ("f_ns", "w_ns", "opt_ns"):
            self.assertLess(layers[0][key], layers[1][key], key)
            self.assertLess(layers[2][key], layers[1][key], key)
        self.assertEqual(layers[1]["spread"]["b"]["count"], 4 * REPEATS)
        self.assertEqual(layers[1]["spread"]["i"]["count"], 4 * REPEATS)
        found = sum(layer["f_ns"] + layer["b_ns"] for layer in layers)
        steps.append(whole_step_ns(model, inputs, targets, 9))
        self.assertGreater(found, min(steps) / 4)
        self.assertLess(found, max(steps) * 4)
        self.assertGreater(found, sum(layer["f_ns"] + layer["b_ns"] for layer in profile["sizes"][0]["layers"]) / 2)
        self.assertNotIn("issue_ns", profile["transfer"])  # one rank sends nothing

    def test_ranks_are_measured_at_once_with_their_messages(self):
        profiles = run_job(2, measured, REPEATS)
        self.assertEqual(profiles[0], profiles[1])
        profile = profiles[0]
        self.assertEqual((profile["model_name"], profile["ranks_measured"], profile["repeats"]), ("gpt", 2, REPEATS))
        self.assertEqual(profile["sizes"][0]["layers"][0]["spread"]["f"]["count"], 2 * 4 * REPEATS)
        self.assertGreater(profile["transfer"]["issue_ns"], 0)
        # 0 where the message is there before the sender's call returns, which happens where cores are few.
        self.assertGreaterEqual(profile["transfer"]["latency_ns"], 0)
        self.assertGreater(profile["transfer"]["bytes_per_second"], 0)
        self.assertGreater(profile["action_overhead_ns"], 0)
        self.assertGreater(profile["step_overhead_ns"], 0)
        self.assertGreater(profile["sizes"][0]["layers"][0]["opt_ns"], 0)  # gradients are divided once
        self.assertEqual(len(profile["sizes"][0]["layers"]), 7)

    def test_samples_of_other_lengths_tell_a_job_what_its_samples_take(self):
        captured = pipewright.torch.capture(Gpt(blocks=3), gpt_batch(2)[0], name="gpt")
        batches = [gpt_batch(2), gpt_batch(4), gpt_batch(2, LENGTH // 3), gpt_batch(4, LENGTH // 2)]
        profile = pipewright.torch.measure(captured, batches, loss_fn, repeats=2)
        self.assertEqual([size["micro_batch_size"] for size in profile["sizes"]], [2, 4])
        self.assertEqual(profile["length"], LENGTH)
        found = [(one["length"], [size["micro_batch_size"] for size in one["sizes"]]) for one in profile["lengths"]]
        self.assertEqual(found, [(LENGTH // 3, [2]), (LENGTH // 2, [4])])

        def tuned(lengths):
            job = {**job_of(captured, "1f1b"), "sample_lengths": lengths}
            return pipewright.tune(job, profile=profile, top=1, threads=1).plan

        half = LENGTH // 2
        self.assertTrue(tuned([LENGTH, LENGTH, half, half, half, half, LENGTH, LENGTH]).fields["costs"]["actions"])
        self.assertNotIn("actions", tuned([LENGTH] * 8).fields["costs"])
        with self.assertRaisesRegex(pipewright.InputError, f"{LENGTH // 3} to {LENGTH}, found {LENGTH + 1}") as refused:
            tuned([LENGTH] * 7 + [LENGTH + 1])
        self.assertEqual(refused.exception.pointer, "/sample_lengths/7")

    def test_a_model_of_one_length_is_not_measured_with_another(self):
        captured = pipewright.torch.capture(FixedLength(), gpt_batch(2)[0], name="fixed")
        self.assertFalse(captured.any_length)
        with self.assertRaisesRegex(pipewright.InputError, f"fixed was captured for length {LENGTH} alone"):
            pipewright.torch.measure(captured, [gpt_batch(2), gpt_batch(2, LENGTH // 2)], loss_fn)

    def test_measure_starts_processes_of_its_own(self):
        model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 256))
        profile = pipewright.torch.measure(model, [wide_batch(8)], mse, repeats=2, processes=2)
        self.assertEqual(profile["ranks_measured"], 2)
        self.assertIn("issue_ns", profile["transfer"])

    def test_what_cannot_be_measured_is_one_sentence(self):
        said = {}

        def refuse(what, *arguments, **options):
            try:
                pipewright.torch.measure(*arguments, **options)
            except pipewright.InputError as error:
                said[what] = str(error)

        model = nn.Sequential(nn.Linear(256, 256))
        refuse("no loss", model, [wide_batch(2)], None)
        refuse("no batch", model, [], mse)
        refuse("no pair", model, [torch.randn(2, 256)], mse)
        refuse("length", model, [wide_batch(2), (torch.randn(4, 128), torch.randn(4, 128))], mse)
        refuse("repeats", model, [wide_batch(2)], mse, repeats=0)
        refuse("processes", model, [wide_batch(2)], mse, processes=0)
        refuse("device", nn.Sequential(nn.Linear(4, 4, device="meta")), [wide_batch(2)], mse)
        refuse("no chain", Wide((2,)), [wide_batch(2)], mse)
        expected = {
            "no loss": "give loss_fn",
            "no batch": "there are none",
            "no pair": "0 is no pair of inputs and targets",
            "length": "one has 4 samples of length 128, and none 4",
            "repeats": "expected 1 to",
            "processes": "expected 1 or more",
            "device": "the model is on meta",
            "no chain": "capture() them",
        }
        assert_refusals(self, said, expected)


# The loop: capture and measure, plan, run the plan, and compare.

BLOCKS, MICRO_BATCHES, SAMPLES = 4, 4, 2


def job_of(captured, schedule):
    return {
        "schema": "pipewright.job/1",
        "model": captured.model,
        "cluster": {"preset": "local-cpu", "devices": 2},
        "global_batch": MICRO_BATCHES * SAMPLES,
        "strategy": {
            "pp_degree": 2,
            "dp_degree": 1,
            "accumulate_steps": MICRO_BATCHES,
            "schedule_mode": schedule,
            "comm_policy": "torch-gloo",
        },
    }


def made_model():
    torch.manual_seed(22)
    return Gpt(blocks=BLOCKS)


def whole_batch():
    torch.manual_seed(7)
    size = (MICRO_BATCHES * SAMPLES, gpt_batch(1)[0].shape[1])
    return torch.randint(WORDS, size), torch.randint(WORDS, size)


def looped(rank, schedules):
    """By schedule: losses, gradients and actions of this rank, what the plan says, the step it predicts."""
    captured = pipewright.torch.capture(made_model(), gpt_batch(SAMPLES)[0], name="gpt")
    profile = pipewright.torch.measure(captured, [gpt_batch(SAMPLES)], loss_fn, repeats=2)
    found = []
    for schedule in schedules:
        model = made_model()
        mine = pipewright.torch.capture(model, gpt_batch(SAMPLES)[0], name="gpt")
        plan = pipewright.tune(job_of(mine, schedule), profile=profile, top=1, threads=1).plan
        stages = pipewright.torch.split(mine, plan)
        pipeline = pipewright.torch.schedule(plan, stages, loss_fn)
        assert pipewright.torch.check(pipeline)
        tokens, targets = whole_batch()
        losses, ran = traced_step(pipeline, tokens, targets)
        trained = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        with tempfile.TemporaryDirectory() as folder:
            with pipewright.torch.record(pipeline, os.path.join(folder, "step.json")):
                step_on(pipeline, tokens, targets)
            traces = len(os.listdir(folder))
        found.append((losses, trained, ran, plan.order.rows[rank], plan.predicted_step_ns, traces))
    return found


class Loop(unittest.TestCase):
    SCHEDULES = ("1f1b", "interleaved", "zb-h1", "zbv")

    def test_a_captured_and_measured_model_trains_as_it_does_unpipelined(self):
        model = made_model()
        tokens, targets = whole_batch()
        wanted = [loss_fn(model(x), y) for x, y in zip(tokens.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES))]
        (sum(wanted) / MICRO_BATCHES).backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        by_rank = run_job(2, looped, self.SCHEDULES)
        for number, schedule in enumerate(self.SCHEDULES):
            trained, losses = {}, []
            for rank in range(2):
                own_losses, own, ran, row, predicted, traces = by_rank[rank][number]
                with self.subTest(schedule, rank=rank):
                    self.assertEqual([action for action in ran if action in row], [a for a in row if a])
                    self.assertGreater(predicted, 0)
                    self.assertEqual(traces, 1 if rank == 0 else 0)
                trained.update(own)
                losses += own_losses
            with self.subTest(schedule):
                self.assertEqual(set(trained), set(gradients))
                self.assertLess(difference([list(trained.values())], [[gradients[name] for name in trained]]), 1e-5)
                for a, b in zip(losses, wanted, strict=True):
                    self.assertLess(abs(a - b.item()) / b.item(), 1e-5)

    def test_the_profile_is_a_file_that_the_command_reads(self):
        profiles = run_job(1, measured, 1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "profile.json")
            with open(path, "w") as file:
                json.dump(profiles[0], file)
            captured = pipewright.torch.capture(Gpt(blocks=3), gpt_batch(2)[0], name="gpt")
            tuned = pipewright.tune(job_of(captured, "1f1b"), profile=path, top=1)
            self.assertIn("profile of gpt", tuned.plan.fields["costs"]["source"])


if __name__ == "__main__":
    unittest.main()
