"""split(): a model's layers as the stages of a plan, which then trains as the model without a pipeline; and plans of
something else."""

import json
import os
import tempfile
import unittest

import pipewright
import pipewright.torch
from torch_jobs import (
    EXAMPLES,
    assert_refusals,
    difference,
    layers_of,
    loss_fn,
    run_job,
    step,
    tensor_parallel_plan,
    torch,
    unpipelined,
)

BLOCKS = 4  # of gpt-tiny, whose layers are an embedding, the blocks and a head


def plan_with(folder, cut, name="plan.json"):
    """The example's plan with other layers in its stages."""
    with open(os.path.join(EXAMPLES, name)) as file:
        plan = json.load(file)
    for stage, first, end in zip(plan["stages"], cut, cut[1:]):
        stage["layers"] = [first, end]
    path = os.path.join(folder, f"{'-'.join(map(str, cut))}.json")
    with open(path, "w") as file:
        json.dump(plan, file)
    return path


def trained(rank, paths):
    """By plan: how far this rank is off, and the names of its parameters."""
    found = []
    for path in paths:
        plan = pipewright.Plan.load(path)
        layers = layers_of(BLOCKS)
        stages = pipewright.torch.split(torch.nn.Sequential(*layers), plan)
        pipeline = pipewright.torch.schedule(plan, stages, loss_fn)
        step(pipeline, plan.micro_batches)
        _, wanted = unpipelined(layers_of(BLOCKS), plan.micro_batches)
        mine = [layer for stage in stages for layer in range(*plan.layers[stage.stage_index])]
        off = difference([[p.grad for p in layers[layer].parameters()] for layer in mine], [wanted[x] for x in mine])
        names = {key.split(".")[0] for stage in stages for key in stage.submod.state_dict()}
        found.append((off, names, {str(layer) for layer in mine}))
    return found


def refusals(rank, paths):
    said = {}

    def refuse(what, model, path, **options):
        try:
            pipewright.torch.split(model, pipewright.Plan.load(path), **options)
        except pipewright.InputError as error:
            said[what] = str(error)

    layers = layers_of(BLOCKS)
    refuse("another model", torch.nn.Sequential(*layers[:-1]), paths["plan"])
    refuse("world", torch.nn.Sequential(*layers), paths["four"])
    refuse("tensor parallel", layers, paths["tp"])
    refuse("no chain", torch.nn.ModuleDict(), paths["plan"])
    refuse("no layer", [*layers[:-1], len], paths["plan"])
    layers[-1][1].weight = layers[0].words.weight
    refuse("tied", layers, paths["plan"], parallelize=lambda module, stage: None)
    return said


def tied_layers():
    layers = layers_of(BLOCKS)
    layers[-1][1].weight = layers[0].words.weight
    return layers


def optimized(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def tied_alone(micro_batches, steps):
    """The words' weights after each update, of two steps each, without a pipeline."""
    layers = tied_layers()
    optimizer = optimized({id(p): p for layer in layers for p in layer.parameters()}.values())
    found = []
    for _ in range(steps):
        for _ in range(2):
            unpipelined(layers, micro_batches)
        optimizer.step()
        optimizer.zero_grad()
        found.append(layers[0].words.weight.detach().clone())
    return found


def trained_tied(rank, paths, steps):
    """By plan: how many of the first and the last stage are here, and how far their tables are off after each update."""
    found = []
    for path in paths:
        plan = pipewright.Plan.load(path)
        stages = pipewright.torch.split(tied_layers(), plan)
        pipeline = pipewright.torch.schedule(plan, stages, loss_fn)
        optimizer = optimized([p for stage in stages for p in stage.submod.parameters()])
        tables = [p for stage in stages for name, p in stage.submod.named_parameters() if name in ("0.words.weight", "5.1.weight")]
        off = 0.0
        for wanted in tied_alone(plan.micro_batches, steps):
            for _ in range(2):
                step(pipeline, plan.micro_batches)
            optimizer.step()
            optimizer.zero_grad()
            off = max([off, *((table - wanted).abs().max().item() for table in tables)])
        alike = len(tables) < 2 or torch.equal(*tables)
        found.append((len(tables), off, alike))
    return found


class Split(unittest.TestCase):
    def test_equal_and_unequal_cuts_train_right(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, cuts in (
                ("plan.json", ((0, 3, 6), (0, 1, 6), (0, 5, 6))),
                ("plan-4-ranks.json", ((0, 1, 2, 4, 6), (0, 3, 4, 5, 6))),
            ):
                paths = [plan_with(folder, cut, name) for cut in cuts]
                ranks = pipewright.Plan.load(paths[0]).order.ranks
                for found in run_job(ranks, trained, paths):
                    for off, names, expected in found:
                        self.assertLess(off, 1e-5)
                        self.assertEqual(names, expected)

    def test_tied_weights_of_several_stages_train_as_one(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [plan_with(folder, (0, 3, 6))]
            job = {
                "schema": "pipewright.job/1",
                "model": "gpt-tiny",
                "cluster": {"preset": "local-cpu", "devices": 2},
                "global_batch": 8,
                "strategy": {"pp_degree": 2, "micro_batch_size": 2, "schedule_mode": "zbv"},
            }
            paths.append(os.path.join(folder, "zbv.json"))
            pipewright.tune(job, synthesis=False).plan.save(paths[1])
            one, other = run_job(2, trained_tied, paths, 3)
        # 1F1B has the embedding and the head on a rank each, ZB-V both on the first.
        self.assertEqual([[count for count, _, _ in found] for found in (one, other)], [[1, 2], [1, 0]])
        for _, off, alike in [*one, *other]:
            self.assertLess(off, 1e-5)
            self.assertTrue(alike)

    def test_a_plan_of_something_else_is_refused_in_one_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = {
                "plan": plan_with(folder, (0, 3, 6)),
                "four": os.path.join(EXAMPLES, "plan-4-ranks.json"),
                "tp": tensor_parallel_plan(folder),
            }
            for said in run_job(2, refusals, paths):
                expected = {
                    "another model": "of a model of 6 layers",
                    "world": "is for a pipeline of 4 ranks, and the group has 2",
                    "tensor parallel": "divides layers among devices (tp",
                    "no chain": "ModuleDict",
                    "no layer": "layer 5 of the model is a builtin_function",
                    "tied": "0.words.weight is a parameter of stages 0, 1 of",
                }
                assert_refusals(self, said, expected)


if __name__ == "__main__":
    unittest.main()
