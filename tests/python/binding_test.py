"""bind(): the cores of a machine's processes are apart, and all of them are used."""

import json
import os
import subprocess
import sys
import unittest

import pipewright
import pipewright.torch
from pipewright.torch.binding import share_of

BIND = "import json, os, pipewright.torch; print(json.dumps([pipewright.torch.bind(), sorted(os.sched_getaffinity(0))]))"


def bound(process, processes):
    """What bind() returned in a process that torchrun has numbered so, and what the system says."""
    numbers = {"LOCAL_RANK": str(process), "LOCAL_WORLD_SIZE": str(processes)}
    found = subprocess.run([sys.executable, "-c", BIND], env={**os.environ, **numbers}, stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout)


class Binding(unittest.TestCase):
    def test_processes_of_a_machine_have_cores_of_their_own(self):
        cores = sorted(os.sched_getaffinity(0))
        processes = min(3, len(cores))
        shares = []
        for process in range(processes):
            returned, actual = bound(process, processes)
            self.assertEqual(returned, actual)
            shares += actual
        self.assertEqual(shares, cores)

    def test_cores_are_dealt_out_evenly(self):
        for count in range(1, 20):
            cores = list(range(3, 3 + count))
            for processes in range(1, count + 1):
                shares = [share_of(cores, process, processes) for process in range(processes)]
                self.assertEqual(sum(shares, []), cores)
                self.assertLessEqual(max(map(len, shares)) - min(map(len, shares)), 1)

    def test_too_few_cores_are_shared(self):
        self.assertEqual([share_of([4, 5], process, 3) for process in range(3)], [[4, 5]] * 3)

    def test_what_is_not_said(self):
        for process, processes, words in ((2, 2, "process: expected 0 to 1, got 2"), (None, 2, "reads LOCAL_RANK")):
            with self.assertRaises(pipewright.InputError) as caught:
                pipewright.torch.bind(process, processes)
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
