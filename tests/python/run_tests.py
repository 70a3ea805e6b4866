"""Runs the unittest cases of NAME_test.py, without a NAME all. Exit status 77 (skipped) where the package is missing."""

import importlib
import sys
import unittest

SKIPPED = 77
ALL = ("arrays", "errors", "like_the_command", "plans", "documented")


def main():
    try:
        import numpy  # noqa: F401
        import pipewright  # noqa: F401
    except ImportError as error:
        print(f"skipped: the Python package is not built for this Python, or has no NumPy ({error})")
        return SKIPPED
    cases = unittest.TestSuite()
    for name in sys.argv[1:] or ALL:
        module = importlib.import_module(name + "_test")
        cases.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    result = unittest.TextTestRunner(stream=sys.stdout).run(cases)
    return 0 if result.testsRun > 0 and result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
