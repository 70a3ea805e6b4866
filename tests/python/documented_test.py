"""The examples of docs/python.md and of the package's own text print what they show."""

import doctest
import os
import tempfile
import unittest

import pipewright

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "python.md")


class Documented(unittest.TestCase):
    def run_examples(self, run):
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(os.path.dirname(PAGE), "..", "examples"), os.path.join(folder, "examples"))
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


if __name__ == "__main__":
    unittest.main()
