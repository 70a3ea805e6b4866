"""Stages that are divided or replicated by PyTorch's own means, in a pipeline of two ranks beside two others: FSDP2,
DistributedDataParallel, tensor parallel layers (DTensor). They train as the model without any of it."""

import json
import os
import subprocess
import tempfile
import unittest

import pipewright
import pipewright.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch_jobs import (
    LENGTH,
    SAMPLES,
    Block,
    batch_of,
    difference,
    even_cut,
    layers_of,
    loss_fn,
    run_job,
    step_on,
    torch,
    unpipelined,
)

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
MICRO_BATCHES = 4
CASES = (
    ("fsdp", "1f1b"),
    ("fsdp", "interleaved-zb"),
    ("fsdp", "zbv"),
    ("fsdp", "1f1b --comms"),
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


KINDS = {"fsdp": sharded, "ddp": replicated, "tp": divided}


def order_of(name):
    schedule, _, comms = name.partition(" ")
    if not comms:
        return pipewright.schedule(schedule, pp=2, micro_batches=MICRO_BATCHES)
    words = ["schedules", "export", schedule, "-p", "2", "-m", str(MICRO_BATCHES), comms]
    text = subprocess.run([os.environ["PIPEWRIGHT_COMMAND"], *words], check=True, capture_output=True, text=True).stdout
    return pipewright.Order.parse(text, name=name)


def whole(gradient):
    return gradient.full_tensor() if isinstance(gradient, torch.distributed.tensor.DTensor) else gradient


def compared(rank, cases):
    """By case: how far losses and gradients of this rank are off."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "beside"))
    place = mesh["pp"].get_local_rank()
    found = []
    for kind, name in cases:
        order = order_of(name)
        layers = layers_of(4)
        cut = even_cut(len(layers), order.stages)
        stages = []
        for stage in order.stages_of(place):
            module = torch.nn.Sequential(*layers[cut[stage] : cut[stage + 1]])
            parallel = KINDS[kind](mesh["beside"])(module, stage)
            stages.append(
                torch.distributed.pipelining.PipelineStage(
                    module if parallel is None else parallel,
                    stage,
                    order.stages,
                    torch.device("cpu"),
                    group=mesh["pp"].get_group(),
                )
            )
        pipeline = pipewright.torch.schedule(order, stages, loss_fn)
        replicas = 1 if kind == "tp" else 2
        own = slice(0, MICRO_BATCHES) if kind == "tp" else slice(
            mesh["beside"].get_local_rank() * MICRO_BATCHES, (mesh["beside"].get_local_rank() + 1) * MICRO_BATCHES
        )
        tokens, targets = (each.unflatten(0, (-1, SAMPLES))[own].flatten(0, 1) for each in batch_of(MICRO_BATCHES * replicas))
        losses = step_on(pipeline, tokens, targets)
        wanted_losses, wanted = unpipelined(layers_of(4), MICRO_BATCHES * replicas)
        mine = [layer for stage in order.stages_of(place) for layer in range(cut[stage], cut[stage + 1])]
        off = difference([[whole(p.grad) for p in layers[layer].parameters()] for layer in mine], [wanted[x] for x in mine])
        off_losses = max((abs(a - b) for a, b in zip(losses, wanted_losses[own])), default=0.0)
        found.append(max(off, off_losses / max(wanted_losses)))
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


def refused(rank):
    """What schedule() says of a stage in DistributedDataParallel whose backward is divided."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "beside"))
    order = order_of("zb-h1")
    module = replicated(mesh["beside"])(torch.nn.Linear(LENGTH, LENGTH), 0)
    place = mesh["pp"].get_local_rank()
    stage = torch.distributed.pipelining.PipelineStage(
        module, place, 2, torch.device("cpu"), group=mesh["pp"].get_group()
    )
    try:
        pipewright.torch.schedule(order, [stage], loss_fn)
    except pipewright.InputError as error:
        return str(error)
    return ""


class BesideThePipeline(unittest.TestCase):
    def test_stages_train_as_the_model_does(self):
        for rank, found in enumerate(run_job(4, compared, CASES)):
            for case, off in zip(CASES, found):
                with self.subTest(*case, rank=rank):
                    self.assertLess(off, 1e-5)

    def test_a_plan_with_tensor_parallel_layers_is_split(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(EXAMPLES, "plan.json")) as file:
                plan = json.load(file)
            plan["mesh"] = {"shape": [2, 2], "dim_names": ["pp", "tp"], "devices": [0, 1, 2, 3]}
            plan["cluster"]["devices_per_node"] = 4
            del plan["cluster_fingerprint"]
            path = os.path.join(folder, "tp.json")
            with open(path, "w") as file:
                json.dump(plan, file)
            for off in run_job(4, split_and_trained, path):
                self.assertLess(off, 1e-5)

    def test_ddp_with_a_divided_backward_is_refused(self):
        for said in run_job(4, refused):
            self.assertIn("DistributedDataParallel", said)
            self.assertNotIn("\n", said)


if __name__ == "__main__":
    unittest.main()
