"""record(): a trace that the command reads, action by action what PyTorch ran, beside what PyTorch's profiler saw."""

import json
import os
import subprocess
import tempfile
import time
import unittest

import pipewright
import pipewright.torch
from pipewright.torch.clocks import shift_by_pings
from torch_jobs import even_cut, layers_of, loss_fn, run_job, schedules, stages_by_cut, step, torch

COMMAND = os.environ.get("PIPEWRIGHT_COMMAND")
NAPS = 0.2  # seconds that the last stage sleeps in its forward: far more than all else takes on a busy machine


class Nap(torch.nn.Module):
    def forward(self, x):
        time.sleep(NAPS)
        return x


def pipeline_of(rank, order, nap=False):
    layers = layers_of(max(order.stages, 4))
    if nap:
        layers[-1] = torch.nn.Sequential(Nap(), layers[-1])
    own = order.stages_of(rank)
    return pipewright.torch.schedule(order, stages_by_cut(layers, even_cut(len(layers), order.stages), own), loss_fn)


def recorded(rank, text, path, steps):
    pipeline = pipeline_of(rank, pipewright.Order.parse(text), nap=True)
    order = pipewright.torch.lists.order_of(pipeline)
    step(pipeline, order.micro_batches)  # connections, shapes
    with pipewright.torch.record(pipeline, path):
        began = time.perf_counter_ns()
        for _ in range(steps):
            step(pipeline, order.micro_batches)
        took = time.perf_counter_ns() - began
    step(pipeline, order.micro_batches)  # is no longer watched
    return order.rows, took


def shifts(rank, lateness):
    """What pings find where rank 1's clock is late."""
    clock = time.perf_counter_ns
    time.perf_counter_ns = lambda: clock() - (lateness if rank == 1 else 0)
    try:
        return shift_by_pings(torch.distributed.group.WORLD)
    finally:
        time.perf_counter_ns = clock


def refusals(rank, folder):
    said = {}

    def refuse(what, pipeline, run, path="step.json"):
        try:
            with pipewright.torch.record(pipeline, os.path.join(folder, path)):
                run()
        except pipewright.InputError as error:
            said[what] = str(error)

    order = pipewright.schedule("1f1b", pp=2, micro_batches=2)
    pipeline = pipeline_of(rank, order)
    refuse("nothing", pipeline, lambda: None)
    layers = layers_of(2)
    single = schedules.ScheduleGPipe(stages_by_cut(layers, even_cut(4, 2), [rank])[0], 2, loss_fn=loss_fn)
    refuse("no list", single, lambda: None)
    pipeline._stages[0].device = torch.device("meta")
    refuse("device", pipeline, lambda: None)
    return said


@unittest.skipUnless(COMMAND, "PIPEWRIGHT_COMMAND names no command to read traces with")
class Traces(unittest.TestCase):
    def read(self, *words):
        done = subprocess.run([COMMAND, *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_command_reads_them(self):
        for name, pp, options in (("1f1b", 2, {}), ("zbv", 2, {}), ("dualpipev", 2, {}), ("zb-h1", 4, {})):
            order = pipewright.schedule(name, pp=pp, micro_batches=4, **options)
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "step{step}.json.gz")
                results = run_job(pp, recorded, order.to_csv(), path, 2)
                self.assertEqual(sorted(os.listdir(folder)), ["step0.json.gz", "step1.json.gz"])
                last = path.replace("{step}", "1")
                figures = json.loads(self.read("analyze", last, "--json"))
                self.assertLess(figures["makespan_ns"], max(took for _, took in results))
                csv = os.path.join(folder, "order.csv")
                self.read("analyze", last, "-o", csv)
                ran = [[action for action in row if action] for row in pipewright.Order.load(csv).rows]
                wanted = [[action for action in row if action] for row in order.rows]
                self.assertEqual(ran, wanted)
                # Every forward of the last stage sleeps, and that is work; waiting for it is not.
                last_rank = max(range(pp), key=lambda rank: max(order.stages_of(rank)))
                busy = [rank["busy_ns"] for rank in figures["ranks"]]
                naps = int(4 * NAPS * 1e9)
                self.assertGreaterEqual(busy[last_rank], naps)
                if pp == 2:
                    self.assertLess(busy[1 - last_rank], naps)

    def test_compare_sets_it_beside_the_simulation(self):
        order = pipewright.schedule("1f1b", pp=2, micro_batches=4)
        with tempfile.TemporaryDirectory() as folder:
            real, simulated = os.path.join(folder, "real.json"), os.path.join(folder, "sim.json")
            run_job(2, recorded, order.to_csv(), real, 1)
            self.read("simulate", "-s", "1f1b", "-p", "2", "-m", "4", "--cost", "F=5ms,B=5ms", "--trace", simulated)
            figures = json.loads(self.read("compare", simulated, real, "--json"))
            self.assertEqual(figures["compared_actions"], 16)
            self.assertEqual({kind["kind"]: kind["count"] for kind in figures["kinds"]}["SEND_F"], 4)


class Clocks(unittest.TestCase):
    def test_pings_find_a_late_clock(self):
        lateness = 7_000_000_000
        (first, _), (shift, error) = run_job(2, shifts, lateness)
        self.assertEqual(first, 0)
        self.assertLessEqual(abs(shift - lateness), error)
        self.assertLess(error, lateness // 10)


class Refusals(unittest.TestCase):
    def test_each_is_one_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            for said in run_job(2, refusals, folder):
                self.assertIn("0 actions ran", said["nothing"])
                self.assertIn("ScheduleGPipe has none", said["no list"])
                self.assertIn("computes on meta", said["device"])


if __name__ == "__main__":
    unittest.main()
