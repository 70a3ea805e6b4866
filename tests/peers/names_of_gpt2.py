"""Weights of a GPT that was trained here, under the names of examples/names/gpt2.json in the GPT2LMHeadModel of
`transformers` (PyPI): it takes them as they are and loses the same; what it has trained of them comes back bit for bit, and
loses the same here. Exit status 77 (skipped) where torch or transformers is missing.

usage: names_of_gpt2.py PIPEWRIGHT EXAMPLES
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
VOCABULARY, LENGTH, SAMPLES = 256, 64, 8  # of gpt-tiny, in examples/plan.json
MOST_DIFFERENCE = 1e-5  # of a loss, relative


def call(command, folder, *words):
    result = subprocess.run([command, *words], cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f'{" ".join(words)} ended with {result.returncode}:\n{result.stderr}')
    return result.stdout


def evaluated(command, folder, checkpoint):
    words = ["run", "plan.json", "--data", "x.npy", "--labels", "y.npy", "--mode", "evaluate", "--load-checkpoint", checkpoint]
    return json.loads(call(command, folder, *words, "-q", "--json"))["evaluation"]["loss"]


def gpt2(transformers, state):
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=4, n_embd=64, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH, bos_token_id=0, eos_token_id=0,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, activation_function="gelu_new", tie_word_embeddings=False,
        )
    )
    model.load_state_dict(state)  # every one of its parameters, and nothing else
    return model


def loss_of(torch, model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    try:
        import numpy
        import torch
        import transformers
        from safetensors.torch import load_file, save_file
    except ImportError as error:
        print(f"skipped: torch or transformers is not installed here ({error})")
        return SKIPPED
    command, examples = sys.argv[1], Path(sys.argv[2])
    names = str(examples / "names" / "gpt2.json")
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        (folder / "plan.json").write_bytes((examples / "plan.json").read_bytes())
        tokens = numpy.random.default_rng(5).integers(0, VOCABULARY, (SAMPLES, LENGTH + 1))
        numpy.save(folder / "x.npy", tokens[:, :-1])
        numpy.save(folder / "y.npy", tokens[:, 1:])
        tokens = torch.from_numpy(tokens)
        call(command, folder, "run", "plan.json", "--data", names, "--steps", "3", "-q", "--save-checkpoint", "saved")
        call(command, folder, "checkpoint", "export", "saved", "--names", names, "-q", "-o", "theirs.safetensors")
        model = gpt2(transformers, load_file(folder / "theirs.safetensors"))
        losses = [(evaluated(command, folder, "saved"), loss_of(torch, model, tokens).item())]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss_of(torch, model, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
        trained = {name: value.clone() for name, value in model.state_dict().items()}
        save_file(trained, folder / "trained.safetensors")
        call(command, folder, "checkpoint", "import", "trained.safetensors", "--names", names, "--like", "saved", "-q", "-o", "back")
        losses.append((evaluated(command, folder, "back"), loss_of(torch, model, tokens).item()))
        call(command, folder, "checkpoint", "export", "back", "--names", names, "-q", "-o", "again.safetensors")
        again = load_file(folder / "again.safetensors")
    same = trained.keys() == again.keys() and all(
        value.numpy().tobytes() == again[name].numpy().tobytes() for name, value in trained.items()
    )
    for ours, theirs in losses:
        print(f"loss here {ours:.6f}, in GPT2LMHeadModel {theirs:.6f}")
    print(f"{len(trained)} tensors, {'bit for bit the same' if same else 'and not the same'} after import and export")
    close = all(abs(ours - theirs) < MOST_DIFFERENCE * theirs for ours, theirs in losses)
    return 0 if same and close and losses[1][0] < losses[0][0] else 1


if __name__ == "__main__":
    sys.exit(main())
