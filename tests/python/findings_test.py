"""docs/findings.md: no smaller order of two or three ranks fares as the two in examples/findings do. All of them are tried:
every order of every rank's actions that their data allow, and with batches every way to join neighbouring transfers."""

import itertools
import os
import unittest

import pipewright
from pipewright._core import torch_single_list

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "findings")
GROUP, LAZY, EAGER, DIRECTIONS, EDGES = (
    *("torch-2.11", "torch-2.12-lazy", "torch-2.12-eager"),
    *("torch-2.14-per-direction", "torch-2.15-per-edge"),
)


def actions_of(rank, place, m, train):
    """The actions of a rank in a step of m micro-batches with stage s on rank place[s], each with what it comes after."""
    after = {}
    for s, k in itertools.product((s for s, r in enumerate(place) if r == rank), range(m)):
        for kind, source, target in (("F", s - 1, s + 1), ("B", s + 1, s - 1))[: 1 + train]:
            after[f"{s}{kind}{k}"] = {f"{s}F{k}"} if kind == "B" else set()
            if 0 <= source < len(place):
                after[f"{s}RECV_{kind}{k}"] = set()
                after[f"{s}{kind}{k}"].add(f"{s}RECV_{kind}{k}")
            if 0 <= target < len(place):
                after[f"{s}SEND_{kind}{k}"] = {f"{s}{kind}{k}"}
    return after


def lists_of(after, done=()):
    if len(done) == len(after):
        yield done
    for action, sources in after.items():
        if action not in done and sources <= set(done):
            yield from lists_of(after, (*done, action))


def joined(cells):
    """Every way to make batches of neighbouring transfers."""
    if not cells:
        yield ()
        return
    transfers = next((n for n, cell in enumerate(cells) if "_" not in cell), len(cells))
    for n in range(1, max(transfers, 1) + 1):
        first = cells[0] if n == 1 else f"({';'.join(cells[:n])})BATCH_P2P"
        for rest in joined(cells[n:]):
            yield (first, *rest)


def orders(ranks, most, train, batches):
    """(actions, text) of every order of at most so many actions. Two stages in a row on a rank send nothing: they are one."""
    for stages in range(ranks, (most + 2) // 3 + 1):  # so that stage, SEND and RECV of each but the last fit
        for place in itertools.product(range(ranks), repeat=stages):
            if set(place) != set(range(ranks)) or any(a == b for a, b in zip(place, place[1:])):
                continue
            for m in range(1, most):
                by_rank = [actions_of(rank, place, m, train) for rank in range(ranks)]
                size = sum(map(len, by_rank))
                if size > most:
                    break
                rows = [list(lists_of(after)) for after in by_rank]
                if batches:
                    rows = [[cells for row in lists for cells in joined(row)] for lists in rows]
                for row in itertools.product(*rows):
                    yield size, "".join(",".join(cells) + "\n" for cells in row)


def verdict(text, policy):
    return pipewright.check(pipewright.Order.parse(text), policy=policy).verdict


def file(name):
    with open(os.path.join(FILES, name)) as text:
        return text.read()


class Smallest(unittest.TestCase):
    def smallest(self, most, batches, ok, hangs):
        """The smallest training orders that end under `ok` and hang under `hangs`."""
        found = [
            (size, text)
            for ranks in (2, 3)
            for size, text in orders(ranks, most, True, batches)
            if verdict(text, hangs) == "deadlock" and verdict(text, ok) == "ok"
        ]
        least = min(size for size, _ in found)
        return least, {text for size, text in found if size == least}

    def test_both_directions_of_a_pair_on_one_communicator(self):
        least, texts = self.smallest(8, False, EDGES, LAZY)
        self.assertEqual(least, 8)
        self.assertIn(file("receive-first.csv"), texts)

    def test_a_batch_on_another_communicator_than_its_partner(self):
        least, texts = self.smallest(8, True, GROUP, LAZY)
        self.assertEqual(least, 8)
        self.assertIn(file("mixed-batch.csv"), texts)
        for text in texts:
            self.assertEqual([verdict(text, policy) for policy in (EAGER, DIRECTIONS, EDGES)], ["ok"] * 3)

    def test_without_batches_what_one_communicator_runs_all_run(self):
        tried = fine = 0
        for ranks, train in itertools.product((2, 3), (False, True)):
            for _, text in orders(ranks, 14 if train else 10, train, False):
                tried += 1
                if verdict(text, GROUP) != "ok":
                    continue
                fine += 1
                for policy in (LAZY, EAGER, DIRECTIONS, EDGES):
                    self.assertEqual(verdict(text, policy), "ok", text)
        print(f"{tried} orders, {fine} of which end on one communicator and on every other")
        self.assertGreater(fine, 20)

    def test_pytorchs_own_batches_meet_batches(self):
        for name, ranks in itertools.product(("Schedule1F1B", "ScheduleGPipe"), range(2, 9)):
            for m in range(ranks, 2 * ranks + 3):
                order = torch_single_list(name, ranks, m)
                for policy in (GROUP, LAZY, EAGER, DIRECTIONS, EDGES):
                    self.assertEqual(pipewright.check(order, policy=policy).verdict, "ok", f"{name} p={ranks} m={m} {policy}")


if __name__ == "__main__":
    unittest.main()
