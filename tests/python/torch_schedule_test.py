"""schedule(): every order of the registry runs in PyTorch's runtime, action by action as it is written, on real processes,
with the losses and gradients of the model without a pipeline."""

import os
import re
import unittest

import pipewright
import pipewright.torch
from run_tests import sampled
from torch_jobs import (
    assert_refusals,
    difference,
    even_cut,
    layers_of,
    loss_fn,
    run_job,
    stages_by_cut,
    torch,
    traced,
    unpipelined,
)

MOST_DIFFERENCE = 1e-5  # relative to the largest element, in float32

# Worked out by hand, with its transfers: two ranks, two micro-batches, rank 1's gradients late.
OWN = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1RECV_F1,1F0,1F1,1I0,1SEND_B0,1B1,1SEND_B1,1W0\n"
)

# docs/findings.md: hangs where both directions of a pair share a communicator, which they do not on gloo.
RECEIVE_FIRST = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "findings", "receive-first.csv")


def orders_of(ranks):
    """Of every schedule that PyTorch's runtime can run, by name; a searched one, and an own CSV."""
    found = {}
    for name in pipewright.schedules():
        if name == "auto":
            continue
        order = pipewright.schedule(name, pp=ranks, micro_batches=8)
        try:
            pipewright._core.torch_file(order, torch.__version__)
        except pipewright.InputError:
            continue
        found[name] = order
    found["interleaved v=3"] = pipewright.schedule("interleaved", pp=ranks, micro_batches=8, vpp=3)
    found["hanayo v=4"] = pipewright.schedule("hanayo", pp=ranks, micro_batches=8, vpp=4)
    found["auto"] = pipewright.schedule("auto", pp=ranks, micro_batches=4, cost="F=5,B=9", mem="F=1,limit=3")
    if ranks == 2:
        found["own.csv"] = pipewright.Order.parse(OWN, name="own.csv")
        found["receive-first.csv"] = pipewright.Order.load(RECEIVE_FIRST)
    return found


def compared(rank, texts):
    """By case: how far losses and gradients of this rank are off, and what it ran."""
    found = []
    for text in texts:
        order = pipewright.Order.parse(text)
        layers = layers_of(max(order.stages, 6))
        cut = even_cut(len(layers), order.stages)
        own = order.stages_of(rank)
        pipeline = pipewright.torch.schedule(order, stages_by_cut(layers, cut, own), loss_fn)
        assert pipewright.torch.check(pipeline)
        losses, ran = traced(pipeline, order.micro_batches)
        wanted_losses, wanted = unpipelined(layers_of(max(order.stages, 6)), order.micro_batches)
        mine = [layer for s in own for layer in range(cut[s], cut[s + 1])]
        gradients = [[p.grad for p in layers[layer].parameters()] for layer in mine]
        off = difference(gradients, [wanted[layer] for layer in mine])
        off_losses = max((abs(a - b) / max(wanted_losses) for a, b in zip(losses, wanted_losses)), default=0.0)
        complete = len(losses) in (0, len(wanted_losses))
        found.append((max(off, off_losses), complete, ran))
    return found


def is_computation(action):
    return re.fullmatch(r"\d+[FIWB]\d+|\(.*\)OVERLAP_F_B", action) is not None


class EverySchedule(unittest.TestCase):
    def train(self, orders, ranks):
        by_rank = run_job(ranks, compared, [order.to_csv() for order in orders.values()])
        for number, (name, order) in enumerate(orders.items()):
            for rank in range(ranks):
                off, complete, ran = by_rank[rank][number]
                with self.subTest(name, rank=rank):
                    self.assertLess(off, MOST_DIFFERENCE)
                    self.assertTrue(complete)
                    row = [action for action in order.rows[rank] if action]
                    self.assertEqual([a for a in ran if is_computation(a)], [a for a in row if is_computation(a)])
                    if any("SEND" in action for action in row):  # transfers where the order has them
                        self.assertEqual([a for a in ran if a in row], row)

    def test_two_ranks(self):
        orders = orders_of(2)
        self.assertLessEqual(
            {
                "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "interleaved-zb", "zbv", "dualpipev", "v-half",
                "hanayo", "auto", "own.csv",
            },
            set(orders),
        )  # fmt: skip
        self.train(dict(sampled(list(orders.items()))), 2)

    def test_four_ranks(self):
        orders = orders_of(4)
        self.assertGreater(len(orders), 20)
        self.train(dict(sampled(list(orders.items()))), 4)


def refusals(rank, _):
    """What schedule() says of what does not fit, on a job of two."""
    layers = layers_of(2)
    cut = even_cut(len(layers), 2)
    stages = stages_by_cut(layers, cut, [rank])
    said = {}

    def refuse(what, order, stages=stages, loss=loss_fn):
        try:
            pipewright.torch.schedule(order, stages, loss)
        except pipewright.InputError as error:
            said[what] = str(error)

    refuse("world", pipewright.schedule("1f1b", pp=4, micro_batches=4))
    refuse("stages", pipewright.schedule("interleaved", pp=2, micro_batches=4))
    refuse("asynchronous", pipewright.schedule("pipedream", pp=2, micro_batches=4))
    refuse("two ways", pipewright.schedule("dualpipe", pp=2, micro_batches=4))
    order = pipewright.schedule("1f1b", pp=2, micro_batches=4)
    refuse("not its own", order, stages_by_cut(layers, cut, [1 - rank]))
    refuse("none", order, [])
    refuse("no loss", order, loss=None)
    refuse("no order", "order.csv")
    refuse("losses", pipewright.Order.parse("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", name="o.csv"))
    refuse("forward only", pipewright.Order.parse("0F0,0F1\n1F0,1F1\n", name="o.csv"))
    refuse("not whole", pipewright.Order.parse("0F0,0B0\n1F0\n", name="o.csv"))
    version, torch.__version__ = torch.__version__, "2.16.0"
    refuse("version", order)
    torch.__version__ = version
    return said


class Refusals(unittest.TestCase):
    def test_each_is_one_sentence(self):
        for rank, said in enumerate(run_job(2, refusals, None)):
            expected = {
                "world": "is for 4 ranks, and the stages' group has 2",
                "stages": "has 4 stages, and the model was divided into 2",
                "asynchronous": "take a synchronous schedule",
                "two ways": "take a schedule without replicas",
                "not its own": f"computes the stages [{rank}] on rank {rank}, which was given [{1 - rank}]",
                "none": "there are none",
                "no loss": "give loss_fn",
                "no order": "not a str",
                "losses": "micro-batches in ascending order",
                "forward only": "a backward of every forward",
                "not whole": "o.csv",
                "version": "PyTorch 2.16.0",
            }
            assert_refusals(self, said, expected)


if __name__ == "__main__":
    unittest.main()
