"""Stages that are divided or replicated by PyTorch's own means, in a pipeline of two ranks beside two others: FSDP2,
DistributedDataParallel, tensor parallel layers (DTensor). They train as the model without any of it."""

import os
import subprocess
import tempfile
import unittest

import pipewright
import pipewright.torch
from torch_jobs import (  # skips where torch is missing
    SAMPLES,
    Block,
    PipelineStage,
    batch_of,
    difference,
    even_cut,
    layers_of,
    loss_fn,
    run_job,
    schedules,
    step_on,
    tensor_parallel_plan,
    torch,
    unpipelined,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

MICRO_BATCHES = 4
CASES = (
    ("fsdp", "1f1b"),
    ("fsdp", "interleaved-zb"),
    ("fsdp", "zbv"),
    ("fsdp", "1f1b --comms"),
    ("freed", "1f1b"),
    ("ddp", "1f1b"),
    ("ddp", "interleaved"),
    ("tp", "1f1b"),
    ("tp", "zbv"),
)


def sharded(mesh):
    def parallelize(module, stage):
        for layer in module:
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
        fully_shard(module, mesh=mesh, reshard_after_forward=False)

    return parallelize


def replicated(mesh):
    return lambda module, stage: torch.nn.parallel.DistributedDataParallel(module, process_group=mesh.get_group())


def divided(mesh):
    def parallelize(module, stage):
        for layer in module:
            if isinstance(layer, Block):
                parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

    return parallelize


def freed(mesh):
    """As fully_shard() does unless it is told otherwise: whole weights of layers are freed after the forward."""

    def parallelize(module, stage):
        for layer in module:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)

    return parallelize


KINDS = {"fsdp": sharded, "freed": freed, "ddp": replicated, "tp": divided}


def order_of(name):
    schedule, _, comms = name.partition(" ")
    if not comms:
        return pipewright.schedule(schedule, pp=2, micro_batches=MICRO_BATCHES)
    words = ["schedules", "export", schedule, "-p", "2", "-m", str(MICRO_BATCHES), comms]
    text = subprocess.run([os.environ["PIPEWRIGHT_COMMAND"], *words], check=True, capture_output=True, text=True).stdout
    return pipewright.Order.parse(text, name=name)


def whole(gradient):
    return gradient.full_tensor() if isinstance(gradient, torch.distributed.tensor.DTensor) else gradient


def stages_of_this_rank(kind, order, mesh):
    """The whole model's layers, those of this rank as stages, and the cut."""
    layers = layers_of(4)
    cut = even_cut(len(layers), order.stages)
    stages = []
    for stage in order.stages_of(mesh["pp"].get_local_rank()):
        module = torch.nn.Sequential(*layers[cut[stage] : cut[stage + 1]])
        parallel = KINDS[kind](mesh["beside"])(module, stage)
        module = module if parallel is None else parallel
        group = mesh["pp"].get_group()
        stages.append(PipelineStage(module, stage, order.stages, torch.device("cpu"), group=group))
    return layers, stages, cut


def trained(kind, pipeline, order, layers, cut, mesh):
    """How far losses and gradients of this rank are off after a step on its replica's half of the batch."""
    replicas = 1 if kind == "tp" else 2
    first = 0 if kind == "tp" else mesh["beside"].get_local_rank() * MICRO_BATCHES
    half = slice(first * SAMPLES, (first + MICRO_BATCHES) * SAMPLES)
    tokens, targets = (each[half] for each in batch_of(MICRO_BATCHES * replicas))
    losses = step_on(pipeline, tokens, targets)
    wanted_losses, wanted = unpipelined(layers_of(4), MICRO_BATCHES * replicas)
    own = order.stages_of(mesh["pp"].get_local_rank())
    mine = [layer for stage in own for layer in range(cut[stage], cut[stage + 1])]
    off = difference([[whole(p.grad) for p in layers[x].parameters()] for x in mine], [wanted[x] for x in mine])
    pairs = zip(losses, wanted_losses[first:])
    return max(off, max((abs(a - b) for a, b in pairs), default=0.0) / max(wanted_losses))


def compared(rank, cases):
    """By case: how far losses and gradients of this rank are off."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "beside"))
    found = []
    for kind, name in cases:
        order = order_of(name)
        layers, stages, cut = stages_of_this_rank(kind, order, mesh)
        pipeline = pipewright.torch.schedule(order, stages, loss_fn)
        found.append(trained(kind, pipeline, order, layers, cut, mesh))
    return found


def split_and_trained(rank, path):
    """A plan whose layers two ranks share, its stages divided by a function."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    plan = pipewright.Plan.load(path)
    layers = layers_of(4)
    stages = pipewright.torch.split(
        layers, plan, group=mesh["pp"].get_group(), parallelize=divided(mesh["tp"])
    )
    pipeline = pipewright.torch.schedule(plan, stages, loss_fn)
    step_on(pipeline, *batch_of(plan.micro_batches))
    _, wanted = unpipelined(layers_of(4), plan.micro_batches)
    mine = [layer for stage in stages for layer in range(*plan.layers[stage.stage_index])]
    return difference([[whole(p.grad) for p in layers[x].parameters()] for x in mine], [wanted[x] for x in mine])


def divided_backward(rank, kind):
    """What schedule() says of it, and how far gradients are off where PyTorch's own class runs it."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "beside"))
    order = order_of("zbv")
    layers, stages, cut = stages_of_this_rank(kind, order, mesh)
    said = ""
    try:
        pipewright.torch.schedule(order, stages, loss_fn)
    except pipewright.InputError as error:
        said = str(error)
    own = schedules.ScheduleZBVZeroBubble(stages, MICRO_BATCHES, loss_fn=loss_fn)
    return said, trained(kind, own, order, layers, cut, mesh)


class BesideThePipeline(unittest.TestCase):
    def test_stages_train_as_the_model_does(self):
        for rank, found in enumerate(run_job(4, compared, CASES)):
            for case, off in zip(CASES, found):
                with self.subTest(" ".join(case), rank=rank):
                    self.assertLess(off, 1e-5)

    def test_a_plan_with_tensor_parallel_layers_is_split(self):
        with tempfile.TemporaryDirectory() as folder:
            path = tensor_parallel_plan(folder)
            for off in run_job(4, split_and_trained, path):
                self.assertLess(off, 1e-5)

    def test_divided_backwards_that_train_wrong_are_refused(self):
        for kind, words in (("ddp", "DistributedDataParallel does not sum"), ("freed", "reshard_after_forward=False")):
            found = run_job(4, divided_backward, kind)
            print(f"{kind}: gradients off by {max(off for _, off in found):.2g} times the largest")
            for said, _ in found:
                self.assertIn(words, said)
                self.assertNotIn("\n", said)
            self.assertGreater(max(off for _, off in found), 0.1)


if __name__ == "__main__":
    unittest.main()
