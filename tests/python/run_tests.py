"""Runs the unittest cases of <name>_test.py. Exit status 77 (skipped) where the package is not built."""

import importlib
import sys
import unittest

SKIPPED = 77


def main():
    try:
        import numpy  # noqa: F401
        import pipewright  # noqa: F401
    except ImportError as error:
        print(f"skipped: the Python package is not built for this Python, or has no NumPy ({error})")
        return SKIPPED
    module = importlib.import_module(sys.argv[1] + "_test")
    cases = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=sys.stdout).run(cases)
    return 0 if result.testsRun > 0 and result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
