"""The package says what the command says of the same input: schedules, and random orders that end, hang, mix up messages
or are not whole."""

import json
import os
import random
import subprocess
import tempfile
import unittest

import pipewright

COMMAND = os.environ.get("PIPEWRIGHT_COMMAND")
COSTS = "F=7us,I=5us,W=4us,comm=2us"
POLICIES = (None, "ideal", "nccl-one-stream", "torch-gloo", "megatron-batched")
SIZES = {
    "chimera": (4, 8, None),
    "dualpipe": (4, 8, None),
    "hanayo": (4, 8, None),
    "1f1b-rr": (3, 6, None),
}


def command(*words):
    """The command's standard output; a verdict that is not ok has status 1."""
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, env={**os.environ, "LANG": "C.UTF-8"})
    if done.returncode not in (0, 1):
        raise AssertionError(f"{words}: {done.stderr}")
    return done.stdout


def words_of(text):
    return text.split()


@unittest.skipUnless(COMMAND, "PIPEWRIGHT_COMMAND names no command to compare with")
class LikeTheCommand(unittest.TestCase):
    maxDiff = None

    def compare_check(self, order, words, policy):
        preset = ["--preset", policy] if policy else []
        theirs = json.loads(command("check", *words, *preset, "--json"))
        ours = pipewright.check(order, policy)
        where = f"{words} {policy}"
        self.assertEqual(ours.verdict, theirs["verdict"], where)
        self.assertEqual(ours.cycle, theirs["cycle"], where)
        self.assertEqual(ours.stuck, theirs["stuck"], where)
        self.assertEqual(ours.problems, theirs["problems"], where)
        self.assertEqual(ours.verdicts, theirs["verdicts"], where)
        return ours

    def test_what_ifs(self):
        order = pipewright.schedule("zb-h1", pp=4, micro_batches=8)
        words = ["--schedule", "zb-h1", "--pp", "4", "--micro-batches", "8", "--cost", "F=7us:9us:7us:7us,I=5us,W=4us,comm=2us"]
        asked = ["rank:1=0.9", "link:0-1=0,F=0.5", "stages=mean"]
        suppose = [word for change in asked for word in ("--suppose", change)]
        theirs = json.loads(command("simulate", *words, *suppose, "--what-if", "--json"))["what_if"]
        timeline = pipewright.simulate(order, cost=words[-1])
        ours = [timeline.suppose(change) for change in asked] + timeline.what_ifs()
        rows = [
            {"change": row.change, "text": row.text, "makespan_ns": row.makespan_ns, "gain_ns": row.gain_ns, "path_ns": row.path_ns}
            for row in ours
        ]
        self.assertEqual(sorted(rows, key=str), sorted(theirs, key=str))
        with self.assertRaisesRegex(pipewright.InputError, "rank"):
            timeline.suppose("rank:9=0.9")
        stuck = pipewright.simulate(pipewright.schedule("paddle-vpp", pp=4, micro_batches=8, vpp=2, jobs="fused"), "paddle-vpp")
        with self.assertRaisesRegex(pipewright.InputError, "deadlock"):
            stuck.what_ifs()

    def compare_simulate(self, order, words, policy, **costs):
        preset = ["--preset", policy] if policy else []
        flags = [word for name, text in costs.items() for word in ("--" + name.replace("_", "-"), text)]
        theirs = json.loads(command("simulate", *words, *preset, *flags, "--json"))
        ours = pipewright.simulate(order, policy or "ideal", **costs)
        where = f"{words} {policy} {costs}"
        if "makespan_ns" not in theirs:
            self.assertEqual(ours.verdict.verdict, theirs["verdict"], where)
            self.assertEqual(ours.verdict.cycle, theirs["cycle"], where)
            return
        self.assertTrue(ours.verdict, where)
        for figure in ("makespan_ns", "bubble_ratio", "span_bubble_ratio"):
            self.assertEqual(getattr(ours, figure), theirs[figure], where)
        for figure in ("busy_ns", "span_ns", "peak_activations", "peak_bytes"):
            self.assertEqual(getattr(ours, figure), [rank[figure] for rank in theirs["ranks"]], where)

    def test_every_schedule(self):
        for name in pipewright.schedules():
            if name == "auto":
                continue  # searched for
            with self.subTest(name):
                pp, micro_batches, vpp = SIZES.get(name, (4, 8, None))
                words = ["--schedule", name, "--pp", str(pp), "--micro-batches", str(micro_batches)]
                order = pipewright.schedule(name, pp=pp, micro_batches=micro_batches, vpp=vpp)
                rows = json.loads(command("simulate", *words, "--emit-order", "--json"))["order"]
                self.assertEqual(order.rows, rows)
                self.compare_check(order, words, None)
                memory = "F=8MiB,W=-8MiB,constant=1GiB"
                # A schedule that plans by costs is another order with other ones.
                planned = pipewright.schedule(
                    name, pp=pp, micro_batches=micro_batches, cost=COSTS, mem=memory
                )
                self.compare_simulate(planned, words, "torch-gloo", cost=COSTS, mem=memory)

    def test_sizes_and_options(self):
        order = pipewright.schedule("interleaved", pp=4, micro_batches=8, vpp=3)
        words = ["-s", "interleaved", "-p", "4", "-m", "8", "-v", "3"]
        self.compare_check(order, words, "torch-gloo")
        fused = pipewright.schedule("paddle-vpp", pp=4, micro_batches=8, vpp=2, jobs="fused")
        words = ["-s", "paddle-vpp", "-p", "4", "-m", "8", "-v", "2", "--jobs", "fused"]
        verdict = self.compare_check(fused, words, None)
        self.assertEqual(verdict.verdict, "deadlock")
        self.assertIn(" ".join(words_of(verdict.explanation)), " ".join(words_of(command("check", *words))))

    def test_a_name_means_what_it_means_there(self):
        self.assertEqual(pipewright.schedule("zbh1", 4, 8).title, "zb-h1: p=4 m=8")

    def random_order(self, draw, folder, number):
        """A schedule's order, with its transfers or without, in which some cells have changed places or are gone."""
        name = draw.choice(("gpipe", "1f1b", "zb-h1", "interleaved"))
        words = [name, "-p", str(draw.randint(2, 4)), "-m", str(4 * draw.randint(1, 2))]
        comms = ["--comms"] if draw.random() < 0.7 else []
        rows = [line.split(",") for line in command("schedules", "export", *words, *comms).split("\n") if line]
        for _ in range(draw.randint(0, 3)):
            row = draw.choice(rows)
            at = draw.randrange(len(row) - 1)
            row[at], row[at + 1] = row[at + 1], row[at]
        if draw.random() < 0.1:
            del draw.choice(rows)[0]
        path = os.path.join(folder, f"order{number}.csv")
        with open(path, "w") as file:
            file.write("".join(",".join(row) + "\n" for row in rows))
        return path

    def test_random_orders(self):
        draw = random.Random(22)
        seen = {}
        with tempfile.TemporaryDirectory() as folder:
            for number in range(60):
                path = self.random_order(draw, folder, number)
                order = pipewright.Order.load(path)
                policy = POLICIES[number % len(POLICIES)]
                verdict = self.compare_check(order, [path], policy)
                seen[verdict.verdict] = seen.get(verdict.verdict, 0) + 1
                if number % 2 == 0:
                    self.compare_simulate(order, [path], policy, cost=COSTS)
                if verdict.verdict != "ok" and number % 3 == 0:
                    printed = command("check", path, *(["--preset", policy] if policy else []))
                    self.assertIn(" ".join(words_of(verdict.explanation)), " ".join(words_of(printed)))
        self.assertTrue({"ok", "deadlock", "invalid"} <= set(seen), seen)

    def test_messages_are_mixed_up(self):
        text = (
            "0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "swapped.csv")
            with open(path, "w") as file:
                file.write(text)
            verdict = self.compare_check(pipewright.Order.load(path), [path], "nccl-one-stream")
        self.assertEqual(verdict.verdict, "mismatch")

    def test_the_picture_is_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "picture.svg")
            command("simulate", "-s", "zb-h1", "-p", "4", "-m", "8", "--cost", COSTS, "--svg", path)
            with open(path) as file:
                theirs = file.read()
        timeline = pipewright.simulate(pipewright.schedule("zb-h1", pp=4, micro_batches=8), cost=COSTS)
        self.assertEqual(timeline._repr_svg_(), theirs)

    def test_orders_come_back_from_both_forms(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("1f1b", "zbv", "dualpipev", "pipedream"):
                order = pipewright.schedule(name, pp=4, micro_batches=8)
                for ending in ("csv", "json"):
                    path = os.path.join(folder, f"{name}.{ending}")
                    order.save(path)
                    self.assertEqual(pipewright.Order.load(path), order, path)
                words = ["-p", "4", "-m", "8"]
                self.assertEqual(order.to_csv(), command("schedules", "export", name, *words))


if __name__ == "__main__":
    unittest.main()
