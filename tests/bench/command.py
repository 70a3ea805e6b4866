"""One row of `pipewright estimate`, for the benches that compare it with published runs."""
import json
import os
import subprocess


def file_of(document, folder, name):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump(document, file)
    return path


def estimate(pipewright, *words):
    """The best configuration of the flags, as `--json` has it; None where none fits into memory."""
    command = [str(word) for word in (pipewright, "estimate", *words, "--json")]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode not in (0, 1):
        raise RuntimeError(said.stderr)
    return json.loads(said.stdout).get("best") if said.stdout else None
