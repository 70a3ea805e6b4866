"""Timelines as arrays: what they say, that they are not copied, and that Python's signals are heeded meanwhile."""

import gc
import signal
import threading
import unittest

import numpy as np
import pipewright


class Arrays(unittest.TestCase):
    def test_they_say_when_each_instruction_runs(self):
        timeline = pipewright.simulate(
            pipewright.schedule("gpipe", pp=2, micro_batches=2), cost="F=10,B=20,comm=3"
        )
        names = pipewright.kinds()
        spans = {
            timeline.text(i): (int(timeline.rank[i]), int(timeline.start_ns[i]), int(timeline.end_ns[i]))
            for i in range(len(timeline))
            if names[timeline.kind[i]] in ("F", "B")
        }
        # Worked out by hand.
        self.assertEqual(
            spans,
            {
                "0F0": (0, 0, 10),
                "0F1": (0, 10, 20),
                "1F0": (1, 13, 23),
                "1F1": (1, 23, 33),
                "1B0": (1, 33, 53),
                "1B1": (1, 53, 73),
                "0B0": (0, 56, 76),
                "0B1": (0, 76, 96),
            },
        )
        self.assertEqual(timeline.makespan_ns, 96)
        self.assertEqual(timeline.busy_ns, [60, 60])
        self.assertEqual(timeline.peak_activations, [2, 2])

    def test_columns_are_those_of_the_instructions(self):
        timeline = pipewright.simulate(pipewright.schedule("zb-h1", pp=3, micro_batches=5))
        names = pipewright.kinds()
        for i in range(len(timeline)):
            text = f"{timeline.stage[i]}{names[timeline.kind[i]]}{timeline.micro_batch[i]}"
            self.assertEqual(timeline.text(i), text)
        self.assertTrue(np.all(np.diff(timeline.rank) >= 0))
        sends = np.isin(timeline.kind, [names.index("SEND_F"), names.index("SEND_B")])
        self.assertEqual(int(sends.sum()), 2 * 2 * 5)

    def test_nothing_is_copied_and_the_timeline_lives_as_long(self):
        timeline = pipewright.simulate(pipewright.schedule("1f1b", pp=4, micro_batches=64))
        columns = ("start_ns", "end_ns", "moving_ns", "rank", "kind", "stage", "micro_batch")
        for name in columns:
            first, second = getattr(timeline, name), getattr(timeline, name)
            self.assertTrue(np.shares_memory(first, second), name)
            self.assertFalse(first.flags.writeable, name)
            self.assertEqual(first.shape, (len(timeline),), name)
        ends = timeline.end_ns
        expected = ends.copy()
        del timeline
        gc.collect()
        [pipewright.simulate(pipewright.schedule("gpipe", pp=4, micro_batches=64)) for _ in range(20)]
        np.testing.assert_array_equal(ends, expected)

    def test_what_never_ran_has_no_times(self):
        order = pipewright.Order.parse("0F0,0B0\n1B0,1F0\n")
        timeline = pipewright.simulate(order)
        self.assertEqual(timeline.verdict.verdict, "invalid")
        self.assertTrue(np.all(timeline.end_ns == -1))


class Signals(unittest.TestCase):
    def count_while_simulating(self, policy):
        order = pipewright.schedule("1f1b", pp=8, micro_batches=50_000)
        heard = []
        before = signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            pipewright.simulate(order, policy)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return len(heard)

    def test_handlers_run_inside_the_simulation(self):
        # Between its phases alone it would be three times.
        self.assertGreater(self.count_while_simulating("ideal"), 5)
        self.assertGreater(self.count_while_simulating("nccl-one-stream"), 5)

    def test_ctrl_c_ends_it(self):
        order = pipewright.schedule("1f1b", pp=8, micro_batches=50_000)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with self.assertRaises(KeyboardInterrupt):
                for _ in range(100):
                    pipewright.simulate(order, "nccl-one-stream")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_other_threads_run_meanwhile(self):
        order = pipewright.schedule("1f1b", pp=8, micro_batches=50_000)
        turns, done = [], threading.Event()

        def turn():
            while not done.wait(0.001):
                turns.append(1)

        thread = threading.Thread(target=turn)
        thread.start()
        before = len(turns)
        pipewright.simulate(order, "nccl-one-stream")
        during = len(turns) - before
        done.set()
        thread.join()
        self.assertGreater(during, 5)


if __name__ == "__main__":
    unittest.main()
