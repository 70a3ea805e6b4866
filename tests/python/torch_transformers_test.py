"""Models of transformers, which return dicts and hand masks around: captured as their blocks, planned, and trained by two
processes as they are without a pipeline."""

import os
import tempfile
import unittest

import pipewright
import pipewright.torch
from pipewright.torch.chaining import chained
from torch_jobs import assert_refusals, difference, run_job, step_on, torch

try:
    import transformers
except ImportError as error:
    raise unittest.SkipTest(f"transformers is not installed for this Python ({error})") from error

WORDS, LENGTH, WIDTH, BLOCKS, MICRO_BATCHES, SAMPLES = 96, 12, 32, 3, 4, 2


def gpt2(tied=False):
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=BLOCKS, n_embd=WIDTH, n_head=4, vocab_size=WORDS, n_positions=LENGTH, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied,
        )
    )


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            num_hidden_layers=BLOCKS, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=WORDS, max_position_embeddings=LENGTH,
        )
    )


def bert():
    return transformers.BertModel(
        transformers.BertConfig(
            num_hidden_layers=BLOCKS, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_attention_heads=4,
            vocab_size=WORDS, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        ),
        add_pooling_layer=False,
    )


def t5_encoder():
    return transformers.T5EncoderModel(
        transformers.T5Config(
            num_layers=BLOCKS, d_model=WIDTH, d_ff=2 * WIDTH, num_heads=4, d_kv=8, vocab_size=WORDS, dropout_rate=0.0
        )
    )


MODELS = {"gpt2": gpt2, "tied gpt2": lambda: gpt2(tied=True), "llama": llama, "bert": bert}
BLOCK = {"gpt2": "transformer.h.{}", "tied gpt2": "transformer.h.{}", "llama": "model.layers.{}", "bert": "encoder.layer.{}"}
MASKED = ("gpt2", "llama", "bert")
CASES = [(name, False) for name in MODELS] + [(name, True) for name in MASKED]


def made(name):
    """The same weights on every rank."""
    torch.manual_seed(22)
    return MODELS[name]()


def captured_of(name, model, example):
    return pipewright.torch.capture(model, example, tied="apart" if name == "tied gpt2" else "together")


def batch():
    torch.manual_seed(7)
    size = (MICRO_BATCHES * SAMPLES, LENGTH)
    return torch.randint(WORDS, size), torch.randint(WIDTH, size)


def mask(samples):
    """The last places of some samples are padding."""
    seen = torch.ones(samples, LENGTH, dtype=torch.long)
    for sample in range(samples):
        seen[sample, LENGTH - sample % 3 :] = 0
    return seen


def example(tokens, masked):
    """By names: of GPT-2's forward a mask is not the second."""
    return {"attention_mask": mask(SAMPLES), "input_ids": tokens[:SAMPLES]} if masked else tokens[:SAMPLES]


def loss_fn(output, target):
    """Of what the captured model returns: a tensor, in place of a dict with it."""
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def trained(rank, paths):
    """By case: how far gradients and losses of this rank are off those without a pipeline."""
    tokens, targets = batch()
    found = {}
    for (name, masked), path in paths.items():
        model, plan = made(name), pipewright.Plan.load(path)
        captured = captured_of(name, model, example(tokens, masked))
        pipeline = pipewright.torch.schedule(plan, pipewright.torch.split(captured, plan), loss_fn)
        named = {"attention_mask": mask(len(tokens))} if masked else {}
        losses = step_on(pipeline, tokens, targets, **named)
        alone = made(name)
        cut = [part.chunk(MICRO_BATCHES) for part in (tokens, targets, mask(len(tokens)))]
        wanted = [loss_fn(alone(x, attention_mask=seen if masked else None)[0], y) for x, y, seen in zip(*cut)]
        (sum(wanted) / MICRO_BATCHES).backward()
        pairs = [
            (mine.grad, its.grad) for mine, its in zip(model.parameters(), alone.parameters()) if mine.grad is not None
        ]
        off = difference([[mine for mine, _ in pairs]], [[its for _, its in pairs]])
        apart = max((abs(a - b.item()) for a, b in zip(losses, wanted)), default=0.0)
        found[name, masked] = (off, apart, len(pairs), len(list(model.parameters())))
    return found


class Transformers(unittest.TestCase):
    def test_their_layers_are_their_blocks_and_return_a_tensor(self):
        tokens, _ = batch()
        for name in MODELS:
            model = made(name)
            captured = captured_of(name, model, tokens[:SAMPLES])
            names = [layer for layer, _ in captured.layers]
            for block in range(BLOCKS):
                self.assertIn(BLOCK[name].format(block), names)
            self.assertEqual(captured.remarks, [], name)
            self.assertNotIn("model.rotary_emb", names)  # nothing but assertions would be left of it
            value = tokens[:3]  # of another size than the example
            for _, layer in captured.layers:
                value = layer(value)
            torch.testing.assert_close(value, model(tokens[:3])[0])
            self.assertEqual(captured.outputs[0].split(":")[0], "last_hidden_state" if name == "bert" else "logits")

    def test_what_is_not_cut_is_said_in_words_of_the_model(self):
        tokens, _ = batch()
        tied = pipewright.torch.capture(gpt2(tied=True), tokens)
        self.assertEqual(tied.remarks, ["transformer.wte to lm_head are one layer: they share lm_head.weight"])
        # The first block's positions go past the others.
        found = pipewright.torch.capture(t5_encoder(), tokens)
        self.assertRegex(
            found.remarks[0],
            r"encoder\.block\.0 to encoder\.block\.2 are one layer: \w+ of encoder\.block\.0\.layer\.0\.SelfAttention, "
            r"\w+ of encoder\.block\.0\.layer\.1 pass between them",
        )

    def test_a_mask_goes_to_each_layer_by_its_name(self):
        tokens, _ = batch()
        for name in MASKED:
            model = made(name)
            captured = pipewright.torch.capture(model, example(tokens, True))
            self.assertEqual(captured.names, ["input_ids", "attention_mask"])
            self.assertEqual(captured.inputs[1], f"attention_mask: int64 [{SAMPLES}, {LENGTH}]")
            self.assertEqual(captured.shared, {"attention_mask": 1})
            self.assertEqual(captured.remarks, [], name)
            names = [layer for layer, _ in captured.layers]
            for block in range(BLOCKS):
                self.assertIn(BLOCK[name].format(block), names)
            seen = mask(3)
            value = tokens[:3]
            for layer, module in captured.layers:
                takes = getattr(module, "pipewright_takes", ())
                self.assertEqual(takes, ("attention_mask",) if layer.split(".")[-1].isdigit() else (), layer)
                value = module(value, **({"attention_mask": seen} if takes else {}))
            torch.testing.assert_close(value, model(tokens[:3], attention_mask=seen)[0])
            with self.assertRaisesRegex(pipewright.InputError, r"take the input attention_mask: give it to step\(\)"):
                chained([(str(place), module) for place, (_, module) in enumerate(captured.layers)], captured.layers)(tokens)

    def test_a_model_with_a_mask_is_measured(self):
        tokens, targets = batch()
        captured = pipewright.torch.capture(made("bert"), example(tokens, True))
        pair = (example(tokens, True), targets[:SAMPLES])
        profile = pipewright.torch.measure(captured, [pair], loss_fn, repeats=3)
        self.assertEqual(len(profile["sizes"][0]["layers"]), len(captured.layers))
        positional = pipewright.torch.capture(made("bert"), (tokens[:SAMPLES], mask(SAMPLES)))
        self.assertEqual((positional.shared, positional.names), ({"attention_mask": 1}, []))

    def test_names_that_are_not_the_models_are_one_sentence(self):
        tokens, targets = batch()
        said = {}

        def refuse(what, function, *arguments):
            try:
                function(*arguments)
            except pipewright.InputError as error:
                said[what] = str(error)

        refuse("unknown", pipewright.torch.capture, made("bert"), {"tokens": tokens})
        captured = pipewright.torch.capture(made("bert"), example(tokens, True))
        refuse("missing", pipewright.torch.measure, captured, [({"input_ids": tokens}, targets)], loss_fn)
        plain = pipewright.torch.capture(made("bert"), tokens)
        refuse("without", pipewright.torch.measure, plain, [({"input_ids": tokens}, targets)], loss_fn)
        expected = {
            "unknown": "forward of BertModel has no input tokens; it has input_ids, attention_mask",
            "missing": "inputs named input_ids, and those of the captured model are attention_mask, input_ids",
            "without": "inputs named input_ids, and those of the captured model are no names",
        }
        assert_refusals(self, said, expected)

    def test_two_processes_train_them_as_they_are_trained_alone(self):
        tokens, _ = batch()
        with tempfile.TemporaryDirectory() as folder:
            paths = {}
            for name, masked in CASES:
                job = {
                    "schema": "pipewright.job/1",
                    "model": captured_of(name, made(name), example(tokens, masked)).model,
                    "cluster": {"preset": "local-cpu", "devices": 2},
                    "global_batch": MICRO_BATCHES * SAMPLES,
                    "strategy": {"pp_degree": 2, "micro_batch_size": SAMPLES, "comm_policy": "torch-gloo"},
                }
                if masked:  # whose stages compute gradients of inputs apart, too
                    job["strategy"]["schedule_mode"] = "zb-h1"
                paths[name, masked] = os.path.join(folder, f"{name}-{masked}.json")
                pipewright.tune(job, synthesis=False).plan.save(paths[name, masked])
            results = run_job(2, trained, paths)
        for case in CASES:
            twice = int(case[0] == "tied gpt2")  # the tied table is in both stages
            self.assertEqual(sum(found[case][2] for found in results), results[0][case][3] + twice)
            for found in results:
                off, apart, _, _ = found[case]
                self.assertLess(off, 1e-5)
                self.assertLess(apart, 1e-5)


if __name__ == "__main__":
    unittest.main()
