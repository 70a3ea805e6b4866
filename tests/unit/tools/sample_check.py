#!/usr/bin/env python3
"""Holds scripts/sample-tests to its promise: N seeds that follow each other choose each test once. With ctest and a build
folder, also that every family of which it chooses a part has a proof that runs it whole.

  sample_check.py SOURCES CTEST BUILD
"""

import collections
import json
import re
import subprocess
import sys
import tempfile


def sample(sources, tests, seed):
    """The names that are chosen, and what is printed."""
    with tempfile.NamedTemporaryFile("r") as file:
        printed = subprocess.run([f"{sources}/scripts/sample-tests", str(seed), file.name], check=True, text=True,
                                 input=json.dumps({"tests": tests}), stdout=subprocess.PIPE).stdout
        numbers = file.read().strip().split(",")
    assert numbers[:3] == ["0", "0", "0"], numbers  # what ctest -I expects before numbers of single tests
    return [tests[int(each) - 1]["name"] for each in numbers[3:]], printed


def described(name, *labels):
    return {"name": name, "properties": [{"name": "LABELS", "value": list(labels)}]}


def every_test_comes_once(sources):
    tests = [described("unit.a.S.C", "unit"), {"name": "unit.a.S.D"}]
    tests += [described(f"parity.b.S.{i}", "parity", "part_of_3") for i in range(7)]
    tests += [described(f"bench.{i}", "bench", "part_of_4") for i in range(5)]
    for parts, prefix in ((3, "parity."), (4, "bench.")):
        for first in (0, 17):
            seen = collections.Counter()
            for seed in range(first, first + parts):
                names, _ = sample(sources, tests, seed)
                assert names[:2] == ["unit.a.S.C", "unit.a.S.D"], names
                seen.update(each for each in names if each.startswith(prefix))
            assert seen == {each["name"]: 1 for each in tests if each["name"].startswith(prefix)}, seen
    _, printed = sample(sources, tests, 0)
    assert re.search(r"^sample of seed 0: \d+ of 14 tests", printed), printed
    assert re.search(r"parity\.b +2 of 7\n.*bench +1 of 5\n", printed), printed


def every_family_has_a_proof(sources, ctest, build):
    listed = subprocess.run([ctest, "--show-only=json-v1"], cwd=build, check=True, stdout=subprocess.PIPE).stdout
    _, printed = sample(sources, json.loads(listed)["tests"], 0)
    families = re.findall(r"^  (\S+) +\d+ of \d+$", printed, re.MULTILINE)
    assert len(families) > 20, printed
    with open(f"{sources}/scripts/prove") as script:
        proofs = script.read()
    for family in families:
        as_test, as_filter = family.replace(".", "/"), "^" + family.replace(".", "[.]") + "[.]"
        assert f" {as_test} " in proofs or as_filter in proofs, f"scripts/prove has no proof of {family}"


every_test_comes_once(sys.argv[1])
every_family_has_a_proof(*sys.argv[1:4])
