"""check() of PyTorch's own schedule objects and lists: the verdicts that the command and the page of PyTorch's lists have,
under the policy of the release and of the group; and what PyTorch then really does on gloo."""

import json
import os
import re
import subprocess
import tempfile
import unittest

import pipewright
import pipewright.torch
from pipewright._core import torch_preset, torch_single_list
from torch_jobs import (
    PipelineStage,
    difference,
    even_cut,
    layers_of,
    run_job,
    schedules,
    stages_by_cut,
    step,
    torch,
    unpipelined,
)

HERE = os.path.dirname(os.path.abspath(__file__))
COMMAND = os.environ.get("PIPEWRIGHT_COMMAND")
LISTS = os.path.join(HERE, "..", "..", "..", "shared", "golden", "pytorch", "lowered.json")
PAGE = os.path.join(HERE, "..", "..", "docs", "pytorch-lists.md")
FINDINGS = os.path.join(HERE, "..", "..", "examples", "findings")

CLASSES = {
    "DualPipeV": schedules.ScheduleDualPipeV,
    "Interleaved1F1B": schedules.ScheduleInterleaved1F1B,
    "InterleavedZeroBubble": schedules.ScheduleInterleavedZeroBubble,
    "LoopedBFS": schedules.ScheduleLoopedBFS,
    "ZBVZeroBubble": schedules.ScheduleZBVZeroBubble,
}


def lowered():
    if not os.path.exists(LISTS):
        raise unittest.SkipTest(f"{LISTS} is not here")
    with open(LISTS) as file:
        return json.load(file)


def rows_of(entry):
    return {rank: row.split(",") for rank, row in enumerate(entry["ranks"])}


def presets_of(release):
    """Every way in which a release's lists may be run."""
    groups = [{"backend": "gloo"}, {"backend": "nccl"}, {"backend": "nccl", "eager": True}]
    if release.startswith("2.15"):
        groups.append({"backend": "nccl", "per_edge": True})
    return [torch_preset(release, **group) for group in groups]


def in_a_v(name):
    return name in ("ZBVZeroBubble", "DualPipeV")


class OneOfMany:
    """A process of a job whose others are not there: enough for a schedule object to be made."""

    def __init__(self, ranks, rank=0):
        self.ranks, self.rank = ranks, rank

    def __enter__(self):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=self.rank, world_size=self.ranks)

    def __exit__(self, *_):
        torch.distributed.destroy_process_group()


def schedule_of(entry):
    """PyTorch's own object, on rank 0."""
    p, v = entry["p"], entry["v"]
    numbers = [0, 2 * p - 1] if in_a_v(entry["schedule"]) else [p * k for k in range(v)]
    stages = [PipelineStage(torch.nn.Identity(), s, p * v, torch.device("cpu")) for s in numbers]
    options = entry["options"] if isinstance(entry["options"], dict) else {}
    made = CLASSES[entry["schedule"]](stages, entry["m"], loss_fn=lambda output, target: output, **options)
    return made


class LikeTheCommand(unittest.TestCase):
    def test_lists_fare_as_the_page_says(self):
        counted = {}
        for entry in lowered():
            options = entry["options"]
            options = "computations alone" if isinstance(options, str) else json.dumps(options, separators=(",", ":"), sort_keys=True)
            for preset in presets_of(entry["pytorch"]):
                verdict = pipewright.torch.check(rows_of(entry), policy=preset).verdict
                counts = counted.setdefault((entry["pytorch"], options.replace(" ", ""), preset), {})
                counts[verdict] = counts.get(verdict, 0) + 1
        with open(PAGE) as file:
            table = file.read().split("<!-- all -->\n")[1].split("\n\n")[0].splitlines()
        columns = [cell.strip() for cell in table[0].strip("|").split("|")]
        seen = 0
        for line in table[2:]:
            row = dict(zip(columns, (cell.strip() for cell in line.strip("|").split("|"))))
            options = row["options"].strip("`").replace(" ", "")
            for preset in presets_of(row["PyTorch"]):
                counts = {verdict: int(n) for n, verdict in re.findall(r"(\d+) (\w+)", row[preset])}
                self.assertEqual(counted[row["PyTorch"], options, preset], counts, line)
                seen += 1
        self.assertEqual(seen, len(counted))

    @unittest.skipUnless(COMMAND, "PIPEWRIGHT_COMMAND names no command to compare with")
    def test_the_command_says_the_same_of_the_same_lists(self):
        verdicts = set()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lists.csv")
            for number, entry in enumerate(lowered()[::12]):
                with open(path, "w") as file:
                    file.write("".join(row + "\n" for row in entry["ranks"]))
                presets = presets_of(entry["pytorch"])
                preset = presets[number % len(presets)]
                done = subprocess.run(
                    [COMMAND, "check", path, "--preset", preset, "--json"], capture_output=True, text=True
                )
                theirs = json.loads(done.stdout)
                ours = pipewright.torch.check(rows_of(entry), policy=preset)
                where = f"{entry['pytorch']} {entry['schedule']} {preset}"
                self.assertEqual((ours.verdict, ours.cycle), (theirs["verdict"], theirs["cycle"]), where)
                verdicts.add(ours.verdict)
        self.assertLessEqual({"ok", "deadlock"}, verdicts)


class Objects(unittest.TestCase):
    def test_an_object_is_judged_by_the_lists_that_it_keeps(self):
        compared = 0
        for entry in lowered():
            if not entry["pytorch"].startswith("2.13") or entry["options"] == "compute_only" or compared >= 40:
                continue
            with OneOfMany(entry["p"]):
                made = schedule_of(entry)
                for preset in presets_of(entry["pytorch"]):
                    self.assertEqual(
                        pipewright.torch.check(made, policy=preset).explanation,
                        pipewright.torch.check(rows_of(entry), policy=preset).explanation,
                    )
            compared += 1
        self.assertEqual(compared, 40)

    def test_schedules_of_one_stage_a_rank(self):
        for name in ("Schedule1F1B", "ScheduleGPipe"):
            with OneOfMany(4):
                stage = PipelineStage(torch.nn.Identity(), 0, 4, torch.device("cpu"))
                made = getattr(schedules, name)(stage, 6, loss_fn=lambda output, target: output)
                verdict = pipewright.torch.check(made, policy="torch-2.12-lazy")
                self.assertEqual(verdict.verdict, "ok")
                self.assertEqual(pipewright.torch.lists.order_of(made), torch_single_list(name, 4, 6))

    def test_what_is_not_known_is_said(self):
        def refusal(*words, **options):
            with self.assertRaises(pipewright.InputError) as caught:
                pipewright.torch.check(*words, **options)
            return str(caught.exception)

        lists = {0: ["0F0", "0B0"], 1: ["1F0", "1B0"]}
        self.assertIn("init_process_group", refusal(lists))
        self.assertIn("from 0 on", refusal({1: ["0F0", "0B0"]}))
        self.assertIn("cannot be read", refusal(3))
        with OneOfMany(2):
            self.assertIn('"fake"', refusal(lists))
            self.assertIn("no back end for meta", refusal(lists, device="meta"))
            stages = [PipelineStage(torch.nn.Identity(), 0, 2, torch.device("cpu"))]
            self.assertIn("no lists yet", refusal(schedules._PipelineScheduleRuntime(stages, 2)))
            forward_only = schedules._ScheduleForwardOnly(stages[0], 2)
            self.assertIn("_ScheduleForwardOnly", refusal(forward_only))


# docs/findings.md: who is hit by defer_pp_recv.


def mixed_up(name, p, m):
    """Whether the schedule's deferred receives of one edge change places, as the page says by sizes."""
    if name == "ZBVZeroBubble":
        return m > p
    if name == "DualPipeV":
        return p > 2
    return name == "InterleavedZeroBubble" and p == 2 and m > 2


def deferred(name, p, m, v):
    """PyTorch's list as an order; None where its class refuses the sizes."""
    with OneOfMany(p):
        try:
            entry = {"schedule": name, "p": p, "m": m, "v": v, "options": {"defer_pp_recv": True}}
            return pipewright.torch.lists.order_of(schedule_of(entry))
        except ValueError as error:
            assert "microbatches" in str(error), error
            return None


class Findings(unittest.TestCase):
    def test_deferred_receives_change_places_in_these_sizes(self):
        for name in CLASSES:
            judged = []
            for p in (2, 3, 4, 5, 6, 8):
                for v in (2,) if in_a_v(name) else (2, 3):
                    for m in range(1, 4 * p + 1):
                        order = deferred(name, p, m, v)
                        if order is None:
                            continue
                        verdict = pipewright.check(order, policy="torch-gloo").verdict
                        self.assertEqual(verdict, "mismatch" if mixed_up(name, p, m) else "ok", f"{name} p={p} m={m} v={v}")
                        judged.append(verdict)
            print(f"{name}: {judged.count('mismatch')} of {len(judged)}")

    def test_and_in_the_lists_of_both_releases(self):
        for entry in lowered():
            if "defer_pp_recv" in entry["options"]:
                verdict = pipewright.torch.check(rows_of(entry), policy="torch-gloo").verdict
                sizes = entry["schedule"], entry["p"], entry["m"]
                self.assertEqual(verdict, "mismatch" if mixed_up(*sizes) else "ok", f"{entry['pytorch']} {sizes}")

    def test_the_files_are_pytorchs_lists(self):
        for file, name, m in (
            ("deferred-zbv", "ZBVZeroBubble", 3),
            ("deferred-interleaved-zb", "InterleavedZeroBubble", 3),
            ("deferred-looped-bfs", "LoopedBFS", 2),
        ):
            with open(os.path.join(FINDINGS, file + ".csv")) as text:
                self.assertEqual(text.read(), deferred(name, 2, m, 2).to_csv())


# What PyTorch then does.


def judge_and_train(rank, ranks, cases):
    """By case, two stages a rank: the verdict, and how far this rank's gradients are from the unpipelined ones."""
    found = []
    for name, m, options in cases:
        layers = layers_of(6)
        cut = even_cut(len(layers), 2 * ranks)
        own = [rank, 2 * ranks - 1 - rank] if in_a_v(name) else [rank, rank + ranks]
        made = CLASSES[name](stages_by_cut(layers, cut, own), m, loss_fn=loss_of, **options)
        verdict = pipewright.torch.check(made)
        losses = step(made, m)
        wanted_losses, wanted = unpipelined(layers_of(6), m)
        mine = [layer for s in own for layer in range(cut[s], cut[s + 1])]
        gradients = [[p.grad for p in layers[layer].parameters()] for layer in mine]
        off = difference(gradients, [wanted[layer] for layer in mine])
        found.append((verdict.verdict, list(verdict.verdicts), off, losses, wanted_losses))
    return found


def loss_of(output, target):
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def logged_single(rank, name, micro_batches):
    """The transfers and computations of a schedule of one stage a rank, as this rank issues them."""
    layers = layers_of(2)
    stage = stages_by_cut(layers, even_cut(len(layers), 2), [rank])[0]
    made = getattr(schedules, name)(stage, micro_batches, loss_fn=loss_of)
    step(made, micro_batches)  # connections, shapes
    log, issue = [], schedules._batch_p2p
    forward, backward = stage.forward_one_chunk, stage.backward_one_chunk

    def logged(ops, desc=None):
        if ops:
            log.append(tuple("SEND" if op.op is torch.distributed.isend else "RECV" for op in ops))
        return issue(ops, desc)

    def logging(kind, call):
        def logged_call(chunk, *words, **options):
            log.append(f"{kind}{chunk}")
            return call(chunk, *words, **options)

        return logged_call

    schedules._batch_p2p = logged
    stage.forward_one_chunk, stage.backward_one_chunk = logging("F", forward), logging("B", backward)
    step(made, micro_batches)
    return log


def words_of(row):
    """The same of our list, without its waits."""
    log = []
    for cell in row:
        if "WAIT" in cell:
            continue
        ends = re.findall(r"\d(SEND|RECV)", cell)
        log.append(tuple(ends) if ends else cell[1:])
    return log


class OnGloo(unittest.TestCase):
    def test_the_verdict_is_what_happens(self):
        late = {"defer_pp_recv": True}
        of_two = [
            ("Interleaved1F1B", 4, {}),
            ("InterleavedZeroBubble", 4, {}),
            ("ZBVZeroBubble", 4, {}),
            ("Interleaved1F1B", 4, late),
            ("LoopedBFS", 4, late),
            ("InterleavedZeroBubble", 2, late),
            ("ZBVZeroBubble", 2, late),
            ("InterleavedZeroBubble", 3, late),
            ("ZBVZeroBubble", 3, late),
        ]
        for ranks, cases in ((2, of_two), (3, [("DualPipeV", 6, {}), ("DualPipeV", 6, late)])):
            by_rank = run_job(ranks, judge_and_train, ranks, cases)
            for case, *found in zip(cases, *by_rank):
                verdicts = {(verdict, tuple(policies)) for verdict, policies, *_ in found}
                self.assertEqual(len(verdicts), 1, case)
                verdict, policies = verdicts.pop()
                self.assertEqual(policies, ("torch-gloo",))
                off = max(of_rank[2] for of_rank in found)
                print(f"{case}: {verdict}, gradients off by {off:.2g} times the largest")
                if case[2] and mixed_up(case[0], ranks, case[1]):  # trains without an error and with wrong gradients
                    self.assertEqual(verdict, "mismatch", case)
                    self.assertGreater(off, 0.1, case)
                else:
                    self.assertEqual(verdict, "ok", case)
                    self.assertLess(off, 1e-5, case)

    def test_schedules_of_one_stage_issue_what_our_lists_say(self):
        for name in ("Schedule1F1B", "ScheduleGPipe"):
            logs = run_job(2, logged_single, name, 4)
            rows = torch_single_list(name, 2, 4).rows
            self.assertEqual(logs, [words_of(row) for row in rows], name)


if __name__ == "__main__":
    unittest.main()
