"""Models of transformers, which return dicts and hand masks around: captured as their blocks, planned, and trained by two
processes as they are without a pipeline."""

import os
import tempfile
import unittest

import pipewright
import pipewright.torch
from torch_jobs import difference, run_job, step_on, torch

try:
    import transformers
except ImportError as error:
    raise unittest.SkipTest(f"transformers is not installed for this Python ({error})") from error

WORDS, LENGTH, WIDTH, BLOCKS, MICRO_BATCHES, SAMPLES = 96, 12, 32, 3, 4, 2


def gpt2(tied=False):
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=BLOCKS, n_embd=WIDTH, n_head=4, vocab_size=WORDS, n_positions=LENGTH, use_cache=False, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied,
        )
    )


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            num_hidden_layers=BLOCKS, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=WORDS, max_position_embeddings=LENGTH, use_cache=False,
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


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert}
BLOCK = {"gpt2": "transformer.h.{}", "llama": "model.layers.{}", "bert": "encoder.layer.{}"}


def made(name):
    """The same weights on every rank."""
    torch.manual_seed(22)
    return MODELS[name]()


def batch():
    torch.manual_seed(7)
    size = (MICRO_BATCHES * SAMPLES, LENGTH)
    return torch.randint(WORDS, size), torch.randint(WIDTH, size)


def loss_fn(output, target):
    """Of what the captured model returns: a tensor, in place of a dict with it."""
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def trained(rank, paths):
    """By model: how far gradients and losses of this rank are off those without a pipeline."""
    tokens, targets = batch()
    found = {}
    for name, path in paths.items():
        model, plan = made(name), pipewright.Plan.load(path)
        captured = pipewright.torch.capture(model, tokens[:SAMPLES])
        pipeline = pipewright.torch.schedule(plan, pipewright.torch.split(captured, plan), loss_fn)
        losses = step_on(pipeline, tokens, targets)
        alone = made(name)
        wanted = [loss_fn(alone(x)[0], y) for x, y in zip(tokens.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES))]
        (sum(wanted) / MICRO_BATCHES).backward()
        pairs = [
            (mine.grad, its.grad) for mine, its in zip(model.parameters(), alone.parameters()) if mine.grad is not None
        ]
        off = difference([[mine for mine, _ in pairs]], [[its for _, its in pairs]])
        apart = max((abs(a - b.item()) for a, b in zip(losses, wanted)), default=0.0)
        found[name] = (off, apart, len(pairs), len(list(model.parameters())))
    return found


class Transformers(unittest.TestCase):
    def test_their_layers_are_their_blocks_and_return_a_tensor(self):
        tokens, _ = batch()
        for name in MODELS:
            model = made(name)
            captured = pipewright.torch.capture(model, tokens[:SAMPLES])
            names = [layer for layer, _ in captured.layers]
            for block in range(BLOCKS):
                self.assertIn(BLOCK[name].format(block), names)
            self.assertEqual(captured.remarks, [], name)
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
        masked = pipewright.torch.capture(bert(), (tokens, torch.ones_like(tokens)))
        self.assertIn("the input attention_mask", masked.remarks[0])

    def test_two_processes_train_them_as_they_are_trained_alone(self):
        tokens, _ = batch()
        with tempfile.TemporaryDirectory() as folder:
            paths = {}
            for name in MODELS:
                job = {
                    "schema": "pipewright.job/1",
                    "model": pipewright.torch.capture(made(name), tokens[:SAMPLES]).model,
                    "cluster": {"preset": "local-cpu", "devices": 2},
                    "global_batch": MICRO_BATCHES * SAMPLES,
                    "strategy": {"pp_degree": 2, "micro_batch_size": SAMPLES, "comm_policy": "torch-gloo"},
                }
                paths[name] = os.path.join(folder, f"{name}.json")
                pipewright.tune(job, synthesis=False).plan.save(paths[name])
            results = run_job(2, trained, paths)
        for name in MODELS:
            self.assertEqual(sum(found[name][2] for found in results), results[0][name][3])
            for found in results:
                off, apart, _, _ = found[name]
                self.assertLess(off, 1e-5)
                self.assertLess(apart, 1e-5)


if __name__ == "__main__":
    unittest.main()
