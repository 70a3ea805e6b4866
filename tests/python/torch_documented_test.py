"""The scripts of docs/python.md: one captures, measures and plans, one trains under torchrun and its trace is read."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from torch_jobs import torch  # noqa: F401

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
COMMAND = os.environ.get("PIPEWRIGHT_COMMAND")


def script_of_page(name):
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        blocks = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
    (script,) = [block for block in blocks if block.startswith(f"# {name}\n")]
    return script


class Documented(unittest.TestCase):
    def test_a_model_is_captured_measured_and_planned(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "measure.py"), "w") as file:
                file.write(script_of_page("measure.py"))
            done = subprocess.run([sys.executable, "measure.py"], cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"<Captured Net: 9 layers, 11,008 weights>\n.*: \d+\.\d ms\n")
            for name in ("model.json", "profile.json", "plan.json"):
                self.assertTrue(os.path.exists(os.path.join(folder, name)))

    def test_the_script_trains_and_leaves_its_traces(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "train.py"), "w") as file:
                file.write(script_of_page("train.py"))
            os.symlink(os.path.join(ROOT, "examples"), os.path.join(folder, "examples"))
            launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
            done = subprocess.run([sys.executable, *launch], cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            losses = [float(text) for text in re.findall(r"loss (\S+)", done.stdout)]
            self.assertEqual(len(losses), 3)
            self.assertLess(losses[2], losses[0])
            self.assertEqual(sorted(name for name in os.listdir(folder) if name.startswith("step")),
                             ["step0.json", "step1.json", "step2.json"])  # fmt: skip
            if COMMAND:
                read = subprocess.run([COMMAND, "analyze", "step2.json"], cwd=folder, capture_output=True, text=True)
                self.assertEqual(read.returncode, 0, read.stderr)
                self.assertIn("rank 1 |", read.stdout)


if __name__ == "__main__":
    unittest.main()
