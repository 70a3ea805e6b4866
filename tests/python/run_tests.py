"""Runs the unittest cases of NAME_test.py, without a NAME all. Exit status 77 (skipped) where the package is missing, or
what all of them need, such as PyTorch. Of those that start many processes PIPEWRIGHT_TORCH_SAMPLE=k/n chooses the k-th of
each n cases (`scripts/prove torch` runs all)."""

import importlib
import os
import sys
import unittest

SKIPPED = 77
ALL = (
    "arrays",
    "binding",
    "errors",
    "findings",
    "like_the_command",
    "plans",
    "documented",
    "torch_capture",
    "torch_check",
    "torch_documented",
    "torch_explain",
    "torch_measure",
    "torch_missing",
    "torch_orders",
    "torch_parallel",
    "torch_record",
    "torch_schedule",
    "torch_split",
    "torch_trained",
    "torch_transformers",
)
SAMPLED = (
    "torch_check",
    "torch_explain",
    "torch_measure",
    "torch_record",
    "torch_split",
    "torch_trained",
    "torch_transformers",
)


def sampled(every, inner=False):
    """At least one of these; `inner` chooses apart from what chose the test."""
    place, _, parts = os.environ.get("PIPEWRIGHT_TORCH_SAMPLE", "0/1").partition("/")
    first = (int(place) // int(parts) if inner else int(place)) % int(parts)
    return every[first % len(every) :: int(parts)]


def cases_of(name):
    """None, and a line that says why, where the module skips itself."""
    try:
        module = importlib.import_module(name + "_test")
    except unittest.SkipTest as reason:
        print(f"skipped: {name}: {reason}")
        return None
    cases = unittest.defaultTestLoader.loadTestsFromModule(module)
    return unittest.TestSuite(sampled([case for suite in cases for case in suite])) if name in SAMPLED else cases


def main():
    try:
        import numpy  # noqa: F401
        import pipewright  # noqa: F401
    except ImportError as error:
        print(f"skipped: the Python package is not built for this Python, or has no NumPy ({error})")
        return SKIPPED
    found = [cases for cases in map(cases_of, sys.argv[1:] or ALL) if cases is not None]
    if not found:
        return SKIPPED
    result = unittest.TextTestRunner(stream=sys.stdout).run(unittest.TestSuite(found))
    return 0 if result.testsRun > 0 and result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
