"""explain(): jobs over gloo that really hang, dumped by PyTorch's Flight Recorder while they do."""

import json
import os
import pickle
import subprocess
import tempfile
import threading
import time
import unittest

import pipewright
import pipewright.torch
from torch_jobs import run_job, torch

COMMAND = os.environ.get("PIPEWRIGHT_COMMAND")
HANGS_FOR = 3.0  # seconds after which what has not ended does not end

dist = torch.distributed


def reduce_of(size=8, group=None):
    dist.all_reduce(torch.ones(size), group=group)


def gather(size=8):
    dist.all_gather([torch.ones(size) for _ in range(dist.get_world_size())], torch.ones(size))


# What ranks do, each a program that hangs.


def a_rank_skips_the_last(rank, groups):
    reduce_of()
    if rank != 1:
        gather()


def a_rank_skips_one_in_between(rank, groups):
    for turn in range(2):
        reduce_of()
        if rank != 1 or turn == 0:
            reduce_of()  # the one that is left out
        reduce_of()


def other_order(rank, groups):
    first, second = groups if rank == 0 else reversed(groups)
    reduce_of(group=first)
    reduce_of(group=second)


def other_operation(rank, groups):
    reduce_of()
    if rank == 1:
        dist.broadcast(torch.ones(8), 0)
    else:
        reduce_of()


def other_size(rank, groups):
    """The rank that has the data does not come: where data come, gloo ends a process that expects less of them."""
    reduce_of()
    if rank != 0:
        dist.broadcast(torch.ones(8 * rank), 0)


def a_transfer_hangs(rank, groups):
    reduce_of()
    dist.recv(torch.ones(8), 1 - rank)


def nothing_hangs(rank, groups):
    reduce_of()
    gather()
    dist.barrier()


def dumped(rank, program, folder):
    """Both forms of the rank's dump, while its program hangs in a thread of its own."""
    everyone = list(range(dist.get_world_size()))
    groups = [dist.new_group(everyone), dist.new_group(everyone)]

    def run():
        try:
            program(rank, groups)
        except RuntimeError:  # the first to leave ends the others' calls
            pass

    threading.Thread(target=run, daemon=True).start()
    time.sleep(HANGS_FOR)
    recorder = torch._C._distributed_c10d
    for name, dump in (("pickles", recorder._dump_fr_trace()), ("json", recorder._dump_fr_trace_json())):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        with open(f"{folder}/{name}/trace_{rank}", "wb") as file:
            file.write(dump.encode() if isinstance(dump, str) else dump)
    # Not until all have written may one go, for that ends the others' calls.
    while len(os.listdir(f"{folder}/json")) < len(everyone):
        time.sleep(0.05)
    time.sleep(0.2)
    os._exit(0)


def dumps_of(ranks, program, folder):
    context = torch.multiprocessing.spawn(_dump, (ranks, program, folder), nprocs=ranks, join=False)
    deadline = time.monotonic() + 120
    while not context.join(timeout=1):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
            raise AssertionError("the job did not write its dumps")


def _dump(rank, ranks, program, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    dumped(rank, program, folder)


class RealHangs(unittest.TestCase):
    def explained(self, ranks, program):
        with tempfile.TemporaryDirectory() as folder:
            dumps_of(ranks, program, folder)
            found = pipewright.torch.explain(f"{folder}/pickles")
            print(f"{program.__name__}: {found}")
            as_json = pipewright.torch.explain(f"{folder}/json")  # which does not say from where calls came
            self.assertEqual(as_json.verdict, found.verdict)
            self.assertEqual(as_json.absent, found.absent)
            by_rank = {}
            for rank in range(ranks):
                with open(f"{folder}/pickles/trace_{rank}", "rb") as file:
                    by_rank[rank] = file.read()
                # What any pickle of Python's makes of it is read alike.
                for protocol in (2, 4, 5):
                    again = pickle.dumps(pickle.loads(by_rank[rank]), protocol)
                    with open(f"{folder}/pickles/trace_{rank}", "wb") as file:
                        file.write(again)
            self.assertEqual(pipewright.torch.explain(by_rank).fields, found.fields)
            self.assertEqual(pipewright.torch.explain(f"{folder}/pickles").fields, found.fields)
            if COMMAND:
                done = subprocess.run([COMMAND, "explain", f"{folder}/pickles", "--json"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0 if found.ok else 1, done.stderr)
                self.assertEqual(json.loads(done.stdout)["dumps"], found.fields)
        return found

    def test_a_rank_skips_the_last(self):
        found = self.explained(4, a_rank_skips_the_last)
        self.assertEqual(found.verdict, "deadlock")
        self.assertEqual(found.absent, [1])
        (standstill,) = found.fields["standstills"]
        self.assertEqual(standstill["missing"], [1])
        self.assertEqual([call["rank"] for call in standstill["calls"]], [0, 2, 3])
        self.assertEqual({call["operation"] for call in standstill["calls"]}, {"all_gather"})
        self.assertIn("torch_explain_test.py", standstill["calls"][0]["place"])

    def test_a_rank_skips_one_in_between(self):
        found = self.explained(3, a_rank_skips_one_in_between)
        self.assertEqual(found.verdict, "deadlock")
        self.assertEqual(found.absent, [1])
        (shift,) = found.fields["shifts"]
        self.assertEqual((shift["call"]["rank"], shift["left_out"], shift["others"]["number"]), (1, True, 5))

    def test_other_order(self):
        found = self.explained(2, other_order)
        self.assertEqual(found.verdict, "deadlock")
        self.assertEqual([(wait["call"]["rank"], wait["waits_for"]) for wait in found.fields["waits"]], [(0, 1), (1, 0)])
        self.assertEqual(found.absent, [])

    def test_other_operation(self):
        found = self.explained(3, other_operation)
        self.assertEqual(found.verdict, "mismatch")
        self.assertEqual(found.fields["standstills"][0]["differ"], "kind")

    def test_other_size(self):
        found = self.explained(3, other_size)
        self.assertEqual(found.verdict, "mismatch")
        (standstill,) = found.fields["standstills"]
        self.assertEqual((standstill["differ"], standstill["missing"]), ("shape", [0]))
        self.assertEqual([call["input_sizes"] for call in standstill["calls"]], [[[8]], [[16]]])

    def test_a_hang_in_transfers_does_not_show(self):
        found = self.explained(2, a_transfer_hangs)
        self.assertTrue(found)
        self.assertEqual(found.reasons, ["every call has ended"])

    def test_nothing_hangs(self):
        found = self.explained(2, nothing_hangs)
        self.assertTrue(found)
        self.assertEqual(found.reasons, ["every call has ended"])


def recorded(rank):
    """What gloo's recorder has of two collectives, transfers and a monitored barrier, which have all ended, and of two groups."""
    tensor = torch.ones(8)
    dist.new_group([0, 1])
    reduce_of()
    for _ in range(2):
        if rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1 - rank), dist.P2POp(dist.irecv, torch.ones(8), 1 - rank)]):
        work.wait()
    dist.monitored_barrier()
    dist.barrier()
    deadline = time.monotonic() + 10
    while True:  # a call that has ended is retired a moment later, by another thread
        dump = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
        if all(entry["retired"] for entry in dump["entries"]) or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    calls = [(entry["profiling_name"], entry["state"], entry["retired"]) for entry in dump["entries"]]
    return calls, {name: group["ranks"] for name, group in dump["pg_config"].items()}


class WhatGlooLeavesOut(unittest.TestCase):
    """docs/findings.md"""

    def test_transfers_barriers_members_and_states(self):
        for calls, members in run_job(2, recorded):
            self.assertEqual(calls, [("gloo:all_reduce", "scheduled", True), ("gloo:barrier", "scheduled", True)])
            self.assertEqual(members, {"": "[]"})


class Refusals(unittest.TestCase):
    def test_each_is_one_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            dumps_of(2, nothing_hangs, folder)

            def refused(words, dumps):
                with self.assertRaises(pipewright.InputError) as caught:
                    pipewright.torch.explain(dumps)
                self.assertIn(words, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))

            one = f"{folder}/pickles/trace_0"
            refused("no dump of rank 1 was given", [one])
            refused("and so is", [one, f"{folder}/json/trace_0"])
            with open(one, "rb") as file:
                whole = file.read()
            refused("is cut off", {0: whole[: len(whole) // 2]})
            refused("no dump of rank 1 was given", {0: whole, 2: whole})
            refused("GLOBAL", {0: pickle.dumps(os.getcwd, 2)})
            refused("has no Flight Recorder dump in it", folder)


if __name__ == "__main__":
    unittest.main()
