"""capture(): models that are written as users write them, as chains of layers that compute the same, with what each costs
worked out by hand; and what is no chain."""

import json
import math
import os
import tempfile
import unittest

import pipewright
import pipewright.torch
from torch_jobs import assert_refusals, torch
from torch_models import Basic, Gpt, Residual, gpt_batch, residual_batch

nn = torch.nn


def run(captured, inputs):
    made = inputs
    for _, layer in captured.layers:
        made = (layer(*made),)
    return made[0]


def names(captured):
    return [name for name, _ in captured.layers]


class TwoInputs(nn.Module):
    """Both are used by the first operators alone, and there are two outputs."""

    def __init__(self, skips=False):
        super().__init__()
        self.words, self.extra = nn.Embedding(19, 16), nn.Linear(4, 16)
        self.steps = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.skips = skips

    def forward(self, tokens, features):
        x = first = self.words(tokens) + self.extra(features)
        for step in self.steps:
            x = torch.relu(step(x))
        return {"logits": x + first if self.skips else x, "sum": x.sum(-1)}


class Branch(nn.Module):
    """Decides by what it computes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        if x.sum() > 0:
            x = x + 1
        return self.second(x)


class Branches(nn.Module):
    def __init__(self, between=0):
        super().__init__()
        self.one, self.two = Branch(), Branch()
        self.between = between

    def forward(self, x):
        x = self.one(x)
        return self.two(x + self.between if self.between else x)


class Capture(unittest.TestCase):
    def assert_same(self, model, captured, *inputs):
        """The chain computes what the model does, and its gradients are the model's own."""
        results = []
        for compute in (lambda: model(*inputs), lambda: run(captured, inputs)):
            model.zero_grad()
            torch.manual_seed(3)
            made = torch.utils._pytree.tree_leaves(compute())
            sum(one.float().square().mean() for one in made).backward()
            results.append((made, [parameter.grad.clone() for parameter in model.parameters()]))
        for found, wanted in zip(results[1], results[0]):
            self.assertEqual(len(found), len(wanted))
            for a, b in zip(found, wanted):
                torch.testing.assert_close(a, b)
        model.zero_grad()

    def test_a_gpt_is_its_blocks(self):
        model = Gpt(blocks=3)
        tokens, _ = gpt_batch(2)
        captured = pipewright.torch.capture(model, tokens)
        self.assertEqual(names(captured), ["words", "places", "blocks.0", "blocks.1", "blocks.2", "norm", "head"])
        self.assertEqual(captured.inputs, ["input 0: int64 [2, 6]"])
        self.assertEqual(captured.outputs, ["output 0: float32 [2, 6, 19]"])
        self.assertEqual(captured.tied, [])
        self.assert_same(model, captured, tokens)
        for size in (1, 5):  # of micro-batches that it was not captured with
            self.assert_same(model, captured, gpt_batch(size)[0])
        self.assertEqual(captured.model["sequence"], 6)
        self.assertEqual([row["out"] for row in captured.rows], [16] * 6 + [19])
        self.assertEqual(sum(row["weights"] for row in captured.rows), sum(p.numel() for p in model.parameters()))
        own = {id(parameter) for parameter in model.parameters()}
        self.assertTrue(all(id(p) in own for _, layer in captured.layers for p in layer.parameters()))
        # The head, 16 to 19 without a bias: two operations for each weight.
        self.assertEqual(captured.rows[-1]["operations"], 2 * 16 * 19)

    def test_what_a_layer_keeps_and_computes_is_as_worked_out_by_hand(self):
        inner = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        captured = pipewright.torch.capture(nn.Sequential(inner, nn.Linear(8, 4)), torch.randn(5, 8))
        first, second = captured.rows
        # GELU keeps its input, the second Linear its own; 4 bytes a number. The layer's input counts by itself.
        self.assertEqual(first["kept"], 4 * (32 + 32))
        self.assertEqual(second["kept"], 0)
        # The gradients of the second Linear's input, weights and bias, beside those of the layer's input; of 5 rows.
        self.assertEqual(first["held"], math.ceil(4 * (5 * 32 + 32 * 8 + 8 - 5 * 8) / 5))
        self.assertEqual(second["held"], math.ceil(4 * (8 * 4 + 4) / 5))
        self.assertEqual(first["operations"], 2 * 8 * 32 + 32 + 2 * 32 * 8)
        self.assertEqual((first["in"], first["out"], first["weights"]), (8, 8, 8 * 32 + 32 + 32 * 8 + 8))

    def test_past_a_residual_block_nothing_is_cut(self):
        model = Residual()
        images, _ = residual_batch(4)
        running = model.norm.running_mean.clone()
        captured = pipewright.torch.capture(model, images)
        self.assertEqual(
            names(captured), ["stem", "norm to relu", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "pool", "fc"]
        )
        self.assertEqual(captured.remarks, ["norm to relu are one layer: relu_ writes into batch_norm"])
        torch.testing.assert_close(model.norm.running_mean, running)  # nothing was trained
        self.assertEqual(captured.rows[3]["out"], 8 * 16 * 16)
        self.assert_same(model, captured, images)

    def test_tied_weights_stay_together_unless_they_are_to_be_apart(self):
        model = Gpt(blocks=2, tied=True)
        tokens, _ = gpt_batch(2)
        together = pipewright.torch.capture(model, tokens)
        self.assertEqual(together.tied, [["words.weight", "head.weight"]])
        self.assertEqual(len(together.layers), 1)
        self.assertIn("they share", together.remarks[0])
        self.assert_same(model, together, tokens)
        apart = pipewright.torch.capture(model, tokens, tied="apart")
        self.assertEqual(names(apart)[-1], "head")
        self.assert_same(model, apart, tokens)
        shared = nn.Linear(4, 4)
        chain = nn.Sequential(nn.Linear(4, 4), shared, nn.ReLU(), shared, nn.Linear(4, 2))
        found = pipewright.torch.capture(chain, torch.randn(2, 4))
        self.assertEqual(names(found), ["0", "1 to 3", "4"])
        self.assert_same(chain, found, torch.randn(2, 4))

    def test_two_inputs_and_two_outputs(self):
        model = TwoInputs()
        inputs = (torch.randint(19, (2, 6)), torch.randn(2, 6, 4))
        captured = pipewright.torch.capture(model, inputs)
        self.assertEqual(names(captured), ["words to extra", "steps.0", "steps.1", "steps.2"])
        self.assertEqual(len(captured.inputs), 2)
        self.assertEqual(captured.outputs, ["logits: float32 [2, 6, 16]", "sum: float32 [2, 6]"])
        self.assertIsInstance(run(captured, inputs), tuple)  # as PyTorch's stages return it
        self.assert_same(model, captured, *inputs)

    def test_what_a_skip_passes_is_one_layer(self):
        model = TwoInputs(skips=True)
        inputs = (torch.randint(19, (2, 6)), torch.randn(2, 6, 4))
        captured = pipewright.torch.capture(model, inputs)
        self.assertEqual(names(captured), ["words to extra", "steps.0 to steps.2"])
        self.assertIn("steps.0 to steps.2 are one layer: add of the model, linear_1 of steps.0 pass between them", captured.remarks)
        self.assert_same(model, captured, *inputs)

    def test_modules_that_are_a_chain_need_no_export(self):
        model = Branches()
        captured = pipewright.torch.capture(model, torch.randn(3, 4))
        self.assertEqual(names(captured), ["one", "two"])
        self.assertIn("torch.export refuses it", captured.remarks[0])
        self.assert_same(model, captured, torch.randn(3, 4))

    def test_the_model_file_is_planned_from(self):
        captured = pipewright.torch.capture(Gpt(blocks=4), gpt_batch(2)[0], name="mine")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.json")
            captured.save(path)
            with open(path) as file:
                self.assertEqual(json.load(file), captured.model)
            job = {
                "schema": "pipewright.job/1",
                "model": path,
                "cluster": {"preset": "local-cpu", "devices": 2},
                "global_batch": 8,
                "strategy": {"pp_degree": 2},
            }
            tuned = pipewright.tune(job, top=3, synthesis=False)
        self.assertEqual(tuned.plan.layer_names, names(captured))

    def test_what_cannot_be_captured_is_said_with_its_place(self):
        said = {}

        def refuse(what, *arguments, **options):
            try:
                pipewright.torch.capture(*arguments, **options)
            except pipewright.InputError as error:
                said[what] = str(error)

        refuse("decides", Branch(), torch.randn(2, 4))
        refuse("no chain", Branches(between=1), torch.randn(2, 4))
        refuse("shape", nn.Sequential(nn.Linear(4, 4)), torch.randn(2, 5))
        refuse("no module", len, torch.randn(2, 5))
        refuse("no tensor", nn.Linear(4, 4), 3)
        refuse("samples", TwoInputs(), (torch.randint(19, (2, 6)), torch.randn(3, 6, 4)))
        refuse("tied", nn.Linear(4, 4), torch.randn(2, 4), tied="maybe")
        expected = {
            "decides": "Branch cannot be captured: Could not guard on data-dependent",
            "no chain": "its module two takes something else than what was made before it",
            "shape": "does not run with this example: mat1 and mat2 shapes cannot be multiplied (2x5 and 4x4)",
            "no module": "takes a torch.nn.Module, not a builtin_function_or_method",
            "no tensor": "input 0 is a int",
            "samples": "inputs of 2, 3 samples",
            "tied": 'expected "together" or "apart"',
        }
        assert_refusals(self, said, expected)
        self.assertRegex(said["decides"], r"\(.*torch_capture_test.py:\d+, in forward\)$")
        self.assertRegex(said["no chain"], r"\(.*torch_capture_test.py:\d+, in forward\); and its module two")

    def test_a_block_stays_whole_even_where_its_parts_are_containers(self):
        captured = pipewright.torch.capture(Basic(4, 8, 2), torch.randn(2, 4, 8, 8))
        self.assertEqual(len(captured.layers), 1)


if __name__ == "__main__":
    unittest.main()
