"""Errors by blame: the input's are ValueErrors with their place, the machine's RuntimeErrors."""

import os
import pickle
import tempfile
import unittest

import pipewright


class Input(unittest.TestCase):
    def refusal(self, call, *words, **options):
        with self.assertRaises(pipewright.InputError) as caught:
            call(*words, **options)
        self.assertIsInstance(caught.exception, ValueError)
        self.assertIsInstance(caught.exception, pipewright.Error)
        return caught.exception

    def test_a_json_order_names_file_and_pointer(self):
        text = '{"schema": "pipewright.order/1", "ranks": [["0F0", 3]]}'
        error = self.refusal(pipewright.Order.parse, text, name="o.json")
        self.assertEqual((error.file, error.pointer), ("o.json", "/ranks/0/1"))
        self.assertEqual(str(error), f"o.json: /ranks/0/1: {error.message}")

    def test_a_csv_names_row_and_cell(self):
        error = self.refusal(pipewright.Order.parse, "0F0,0B0\n0F0,what\n", name="o.csv")
        self.assertEqual(error.file, "o.csv")
        self.assertIn("row 2", error.pointer)

    def test_a_file_that_is_not_there(self):
        self.assertIn("none.csv", str(self.refusal(pipewright.Order.load, "none.csv")))

    def test_names_are_suggested(self):
        self.assertIn("zb-h1", str(self.refusal(pipewright.schedule, "zb-h11", pp=2, micro_batches=2)))
        order = pipewright.schedule("1f1b", pp=2, micro_batches=2)
        self.assertIn("ideal", str(self.refusal(pipewright.check, order, "ideaal")))

    def test_a_schedule_refuses_its_sizes_and_options(self):
        sizes = self.refusal(pipewright.schedule, "1f1b", pp=0, micro_batches=8)
        self.assertIn("rank", str(sizes))
        option = self.refusal(pipewright.schedule, "1f1b", pp=2, micro_batches=8, colour="red")
        self.assertIn("colour", str(option))

    def test_costs_are_called_as_the_argument_is(self):
        order = pipewright.schedule("1f1b", pp=2, micro_batches=2)
        self.assertTrue(str(self.refusal(pipewright.simulate, order, cost="X=1")).startswith("cost"))
        self.assertTrue(str(self.refusal(pipewright.simulate, order, mem="X=1")).startswith("mem"))
        sizes = self.refusal(pipewright.check, order, message_bytes="0")
        self.assertTrue(str(sizes).startswith("message_bytes"))

    def test_a_field_of_a_policy_names_its_pointer(self):
        error = self.refusal(pipewright.Policy, issue="nowhere")
        self.assertEqual((error.file, error.pointer), ("Policy", "/issue"))
        self.assertEqual(self.refusal(pipewright.Policy, colour="red").file, "Policy")

    def test_it_travels_between_processes(self):
        error = self.refusal(pipewright.Policy, issue="nowhere")
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(copy), copy.file, copy.pointer), (str(error), "Policy", "/issue"))


class Machine(unittest.TestCase):
    def test_a_place_where_nothing_can_be_written(self):
        order = pipewright.schedule("1f1b", pp=2, micro_batches=2)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(pipewright.MachineError) as caught:
                order.save(os.path.join(folder, "missing", "order.csv"))
        self.assertIsInstance(caught.exception, RuntimeError)
        self.assertIn("missing", str(caught.exception))


class Results(unittest.TestCase):
    def test_what_hangs_or_is_not_whole_is_a_value(self):
        order = pipewright.Order.parse("0F0,0B0\n1F0\n")
        self.assertTrue(order.problems)
        verdict = pipewright.check(order)
        self.assertEqual((verdict.verdict, bool(verdict)), ("invalid", False))
        self.assertEqual(verdict.problems, order.problems)


if __name__ == "__main__":
    unittest.main()
