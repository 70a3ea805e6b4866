"""Random orders of transfers in PyTorch's runtime on gloo: what check() calls ok trains right, what it calls deadlock hangs,
and where it sees messages mixed up gradients are wrong, a size does not fit, or it hangs."""

import concurrent.futures
import datetime
import os
import random
import re
import statistics
import subprocess
import tempfile
import time
import unittest

import pipewright
import pipewright.torch
from run_tests import sampled
from torch_jobs import PipelineStage, difference, run_job, torch

COMMAND = os.environ.get("PIPEWRIGHT_COMMAND")
OF_EACH = {"ok": 166, "deadlock": 167, "mismatch": 167}
LIMIT_S = 3  # of a message; a hang is told from a slow step by being so many times as long:
HANGS_AFTER = 20  # steps
MOST_DIFFERENCE = 1e-5  # relative to the largest element, in float32
FOLLOWS = {"ok": ("right",), "deadlock": ("hangs",), "mismatch": ("wrong", "error", "hangs")}
RANKS = 3  # of a job; an order may have fewer
JOBS, CASES = 4, 40  # jobs at once, for those that hang take no core; orders of a job
SAMPLES = 2  # of a micro-batch

BASES = [
    (name, p, m, v)
    for name, v in (("gpipe", 1), ("1f1b", 1), ("zb-h1", 1), ("interleaved", 2), ("looped-bfs", 2), ("zbv", 2))
    for p in (2, 3)
    for m in (2, 3, 4, 6)
    if m % p == 0 or name != "interleaved"
]


def exported(name, p, m, v):
    """By rank, the actions that PyTorch's runtime is given, transfers among them."""
    words = [COMMAND, "schedules", "export", name, "-p", p, "-m", m, "-v", v, "--comms", "-q"]
    text = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout
    return [[action for action in row.split(",") if action] for row in text.splitlines()]


def bounds(row, action):
    """Where a transfer may stand in the row without it: a send behind what makes its message (of activations, before the
    backward that drops them), a receive before what takes it. Anything else PyTorch's runtime refuses to run."""
    stage, end, direction, micro_batch = re.fullmatch(r"(\d+)(SEND|RECV)_([FB])(\d+)", action).groups()

    def place(kinds):
        return next(at for at, other in enumerate(row) if re.fullmatch(f"{stage}{kinds}{micro_batch}", other))

    forward, backward = place("F"), place("[BI]")
    if end == "SEND":
        return (forward + 1, backward) if direction == "F" else (backward + 1, len(row))
    return 0, forward if direction == "F" else backward


def shuffled(rows, draw):
    """Some transfers moved, most of them not far."""
    rows = [list(row) for row in rows]
    for _ in range(draw.choice((1, 1, 2, 2, 3, 4, 8))):
        row = draw.choice(rows)
        at = draw.choice([at for at, action in enumerate(row) if "SEND" in action or "RECV" in action])
        action = row.pop(at)
        first, last = bounds(row, action)
        far = draw.choice((2, 3, len(row)))
        row.insert(draw.randint(max(first, min(last, at - far)), min(last, max(first, at + far))), action)
    return rows


def chosen_orders():
    """(verdict, text, whether all messages have one size): so many of each verdict, in any order; of a sample a quarter."""
    draw = random.Random(2026)
    bases = [exported(*base) for base in BASES]
    found, known = {verdict: [] for verdict in OF_EACH}, set()
    while any(len(found[verdict]) < wanted for verdict, wanted in OF_EACH.items()):
        rows = shuffled(draw.choice(bases), draw)
        text = "".join(",".join(row) + "\n" for row in rows)
        if text in known:
            continue
        known.add(text)
        verdict = pipewright.torch.check(dict(enumerate(rows)), policy="torch-gloo").verdict
        if len(found[verdict]) < OF_EACH[verdict]:
            found[verdict].append((verdict, text, draw.random() < 0.5))
    cases = [case for of_one in found.values() for case in of_one]
    draw.shuffle(cases)
    return sampled(cases)[:: 4 if "PIPEWRIGHT_TORCH_SAMPLE" in os.environ else 1]


def layers_of(stages, one_size):
    """A layer for each stage, with the same weights on every rank."""
    torch.manual_seed(22)
    widths = [8 if one_size else 8 + 4 * boundary for boundary in range(stages + 1)]
    return [torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.Tanh()) for a, b in zip(widths, widths[1:])]


def batch_of(layers, micro_batches):
    torch.manual_seed(7)
    samples = micro_batches * SAMPLES
    return torch.randn(samples, layers[0][0].in_features), torch.randn(samples, layers[-1][0].out_features)


def wanted_gradients(order, one_size):
    layers = layers_of(order.stages, one_size)
    x, y = batch_of(layers, order.micro_batches)
    torch.nn.functional.mse_loss(torch.nn.Sequential(*layers)(x), y).backward()
    return [[parameter.grad for parameter in layer.parameters()] for layer in layers]


def outcome(rank, order, one_size, group):
    """"right", "wrong", "hangs" or "error", and how long the step took, in s."""
    layers = layers_of(order.stages, one_size)
    own = order.stages_of(rank)
    stages = [PipelineStage(layers[s], s, order.stages, torch.device("cpu"), group=group) for s in own]
    pipeline = pipewright.torch.schedule(order, stages, torch.nn.functional.mse_loss)
    x, y = batch_of(layers, order.micro_batches)
    began = time.perf_counter()
    try:
        pipeline.step(*((x,) if 0 in own else ()), target=y if order.stages - 1 in own else None, losses=[])
    except RuntimeError as error:
        return "hangs" if "imed out" in str(error) else "error", time.perf_counter() - began
    took = time.perf_counter() - began
    wanted = wanted_gradients(order, one_size)
    found = [[parameter.grad for parameter in layers[s].parameters()] for s in own]
    return "right" if difference(found, [wanted[s] for s in own]) < MOST_DIFFERENCE else "wrong", took


def outcomes(rank, cases, folder):
    """Each order over connections of its own: nobody else's messages are left in them. Said after each, for a message of
    another size than was expected ends the process, by gloo's own thread."""
    dist = torch.distributed
    for number, (_, text, one_size) in enumerate(cases):
        order = pipewright.Order.parse(text)
        group = dist.new_group(list(range(order.ranks)), timeout=datetime.timedelta(seconds=LIMIT_S))
        mine = rank < order.ranks
        torch.save(outcome(rank, order, one_size, group) if mine else ("right", 0.0), f"{folder}/{number}-{rank}")
        dist.barrier()
        if mine:
            dist.destroy_process_group(group)


def outcomes_of(cases):
    """By case, what each rank saw; a job that an order ended is followed by another for those behind it."""
    found = []
    while len(found) < len(cases):
        left = cases[len(found) :]
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_job(RANKS, outcomes, left, folder)
                ended = False
            except torch.multiprocessing.ProcessExitedException as error:
                if error.signal_name != "SIGABRT":
                    raise
                ended = True
            for number in range(len(left)):
                files = [f"{folder}/{number}-{rank}" for rank in range(RANKS)]
                if not all(map(os.path.exists, files)):
                    break
                found.append([torch.load(file) for file in files])
        if ended:
            found.append([("error", 0.0)])
    return found


def of_all_ranks(found):
    """What the order did, by what its ranks saw."""
    seen = {what for what, _ in found}
    for what in ("hangs", "error", "wrong"):
        if what in seen:
            return what
    return "right"


@unittest.skipUnless(COMMAND, "PIPEWRIGHT_COMMAND names no command that writes the orders")
class RandomOrders(unittest.TestCase):
    def test_the_verdict_is_what_happens(self):
        cases = chosen_orders()
        shares = [cases[first : first + CASES] for first in range(0, len(cases), CASES)]
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            found = [ranks for of_share in pool.map(outcomes_of, shares) for ranks in of_share]
        seen, steps, wrong = {}, [], []
        for case, ranks in zip(cases, found):
            what = of_all_ranks(ranks)
            seen[case[0], what] = seen.get((case[0], what), 0) + 1
            if what == "right":
                steps.append(max(took for _, took in ranks))
            if what not in FOLLOWS[case[0]]:
                wrong.append((case, what))
        for (verdict, what), count in sorted(seen.items()):
            print(f"{verdict}: {count} {what}")
        print(f"a right step takes {1e3 * statistics.median(steps):.1f} ms")
        self.assertEqual(wrong, [])
        self.assertGreater(LIMIT_S, HANGS_AFTER * statistics.median(steps))


if __name__ == "__main__":
    unittest.main()
