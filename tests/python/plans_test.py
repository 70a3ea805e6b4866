"""Plans and tune(): what the command says and writes of the same job."""

import json
import os
import subprocess
import tempfile
import threading
import unittest

import pipewright

COMMAND = os.environ.get("PIPEWRIGHT_COMMAND")
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
JOB = os.path.join(EXAMPLES, "job.json")


def without_times(fields):
    return {key: value for key, value in fields.items() if key != "elapsed_ns"}


def job_of_example():
    with open(JOB) as file:
        return json.load(file)


@unittest.skipUnless(COMMAND, "PIPEWRIGHT_COMMAND names no command to compare with")
class LikeTheCommand(unittest.TestCase):
    maxDiff = None

    def command(self, *words):
        done = subprocess.run([COMMAND, *words], capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return json.loads(done.stdout)

    def test_tune_finds_the_same_plan(self):
        for example in ("job.json", "llama3-70b.json"):
            path = os.path.join(EXAMPLES, example)
            with self.subTest(example), tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "plan.json")
                theirs = self.command("tune", path, "--top", "5", "-o", out, "--json")
                tuned = pipewright.tune(path, top=5)
                for key, value in without_times(tuned.fields).items():
                    self.assertEqual(value, theirs[key], key)
                self.assertEqual(tuned.costs, theirs["costing"]["why"])
                with open(out) as file:
                    self.assertEqual(tuned.plan.fields, json.load(file))

    def test_a_plan_is_judged_and_simulated_as_the_command_does(self):
        for example in ("plan.json", "plan-4-ranks.json"):
            path = os.path.join(EXAMPLES, example)
            with self.subTest(example):
                plan = pipewright.Plan.load(path)
                theirs = self.command("simulate", path, "--json")
                timeline = pipewright.simulate(plan)
                self.assertEqual(timeline.makespan_ns, theirs["makespan_ns"])
                self.assertEqual(timeline.peak_bytes, [rank["peak_bytes"] for rank in theirs["ranks"]])
                slower = self.command("simulate", path, "--cost", "F=90ms", "--preset", "torch-gloo", "--json")
                self.assertEqual(
                    pipewright.simulate(plan, "torch-gloo", cost="F=90ms").makespan_ns, slower["makespan_ns"]
                )
                verdict = pipewright.check(plan)
                theirs = self.command("check", path, "--json")
                self.assertEqual((verdict.verdict, verdict.verdicts), (theirs["verdict"], theirs["verdicts"]))

    def test_nothing_possible_is_a_result(self):
        job = job_of_example()
        job["strategy"] = {**job.get("strategy", {}), "memory_limit": 4096}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.json")
            with open(path, "w") as file:
                json.dump(job, file)
            theirs = self.command("tune", path, "--json")
        tuned = pipewright.tune(job)
        self.assertFalse(tuned)
        self.assertIsNone(tuned.plan)
        self.assertEqual(tuned.fields["nearest"], theirs["nearest"])


class Plans(unittest.TestCase):
    def test_a_plan_comes_back(self):
        plan = pipewright.Plan.load(os.path.join(EXAMPLES, "plan.json"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "again.json")
            plan.save(path)
            self.assertEqual(pipewright.Plan.load(path).fields, plan.fields)
        self.assertEqual(pipewright.Plan.parse(plan.to_json()).fields, plan.fields)
        self.assertEqual(plan.order.ranks, plan.ranks)
        self.assertEqual(plan.order.micro_batches, plan.micro_batches)
        self.assertEqual([begin for begin, _ in plan.layers][1:], [end for _, end in plan.layers][:-1])
        self.assertEqual(plan.predicted_step_ns, plan.fields["predicted"]["step_ns"])

    def test_a_job_in_memory(self):
        self.assertEqual(pipewright.tune(job_of_example()).plan.fields, pipewright.tune(JOB).plan.fields)

    def test_a_wrong_job_names_its_place(self):
        job = job_of_example()
        job["global_batch"] = "many"
        with self.assertRaises(pipewright.InputError) as caught:
            pipewright.tune(job)
        self.assertEqual((caught.exception.file, caught.exception.pointer), ("job", "/global_batch"))
        job["global_batch"] = {1, 2}
        with self.assertRaises(pipewright.InputError) as caught:
            pipewright.tune(job)
        self.assertEqual(caught.exception.pointer, "/global_batch")
        self.assertIn("set", caught.exception.message)

    def test_limits_are_refused_by_name(self):
        for name, value in (("top", 0), ("budget", 0.0), ("threads", -1)):
            with self.assertRaisesRegex(pipewright.InputError, name):
                pipewright.tune(JOB, **{name: value})


class Progress(unittest.TestCase):
    def test_it_is_told(self):
        told = []
        pipewright.tune(JOB, progress=lambda *now: told.append((*now, threading.get_ident())))
        phases = [phase for phase, *_ in told]
        self.assertEqual(phases[0], "searching")
        simulated = [count for phase, count, *_ in told if phase == "searching"]
        self.assertEqual(simulated, sorted(simulated))
        self.assertEqual({thread for *_, thread in told}, {threading.get_ident()})
        self.assertIsInstance(told[-1][3], int)

    def test_what_it_raises_ends_the_search(self):
        class Enough(Exception):
            pass

        def enough(*_):
            raise Enough

        with self.assertRaises(Enough):
            pipewright.tune(JOB, progress=enough)

        def interrupt(*_):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            pipewright.tune(JOB, progress=interrupt)


if __name__ == "__main__":
    unittest.main()
