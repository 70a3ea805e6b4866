"""Without PyTorch the package is imported all the same, and says what is missing where it is needed."""

import os
import subprocess
import sys
import tempfile
import unittest

import pipewright
import pipewright.torch


class Missing(unittest.TestCase):
    def run_without_torch(self, code):
        """In a Python for which PyTorch's folder is one that cannot be imported."""
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "torch"))
            with open(os.path.join(folder, "torch", "__init__.py"), "w") as file:
                file.write("raise ImportError('not here')\n")
            path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
            return subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
            )

    def test_importing_imports_no_torch(self):
        code = "import sys, pipewright.torch; assert 'torch' not in sys.modules"
        self.assertEqual(self.run_without_torch(code).stderr, "")

    def test_one_sentence_says_what_is_missing(self):
        code = (
            "import pipewright, pipewright.torch\n"
            "try:\n"
            "    pipewright.torch.preset()\n"
            "except pipewright.MachineError as error:\n"
            "    print(error)\n"
        )
        done = self.run_without_torch(code)
        self.assertEqual(done.stderr, "")
        self.assertIn("needs PyTorch, 2.9 to 2.15", done.stdout)
        self.assertEqual(done.stdout.count("\n"), 1)

    def test_lists_are_checked_under_a_policy_without_it(self):
        code = (
            "import pipewright.torch\n"
            "lists = {0: ['0F0', '0B0'], 1: ['1F0', '1B0']}\n"
            "print(pipewright.torch.check(lists, policy='torch-2.12-eager'))\n"
        )
        self.assertIn("ok\n", self.run_without_torch(code).stdout)


if __name__ == "__main__":
    unittest.main()
