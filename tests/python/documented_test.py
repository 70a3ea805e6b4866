"""What docs/python.md and the package show is what they print; docs/presets.md has all presets."""

import doctest
import os
import re
import tempfile
import unittest

import pipewright

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
PAGE = os.path.join(DOCS, "python.md")


class Documented(unittest.TestCase):
    def run_examples(self, run):
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(DOCS, "..", "examples"), os.path.join(folder, "examples"))
            os.chdir(folder)
            try:
                result = run()
            finally:
                os.chdir(here)
        self.assertEqual(result.failed, 0)
        return result.attempted

    def test_the_page(self):
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        count = self.run_examples(
            lambda: doctest.testfile(PAGE, module_relative=False, optionflags=options)
        )
        self.assertGreater(count, 20)

    def test_the_package(self):
        self.assertGreater(self.run_examples(lambda: doctest.testmod(pipewright)), 2)

    def test_all_that_is_named_is_there(self):
        for name in pipewright.__all__:
            self.assertTrue(getattr(pipewright, name).__doc__, name)

    def test_every_preset_is_somebodys(self):
        with open(os.path.join(DOCS, "presets.md")) as file:
            named = set(re.findall(r"`([^`\s]+)`", file.read()))
        self.assertLessEqual(set(pipewright.policies()), named)


if __name__ == "__main__":
    unittest.main()
