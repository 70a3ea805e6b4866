"""A GPT and a ResNet from capture to trained: measured, planned and split by us, run by PyTorch over gloo in fourteen orders,
for ten updates. Losses, gradients and executed actions are those of the model without a pipeline, and of the plan."""

import copy
import functools
import unittest

import pipewright
import pipewright.torch
from run_tests import sampled
from torch_jobs import WORDS, difference, loss_fn, run_job, step_on, torch, traced_step  # skips where torch is missing
from torch_models import LENGTH, Gpt, Residual, gpt_batch, residual_batch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

MICRO_BATCHES, SAMPLES, UPDATES, RATE = 8, 2, 10, 0.02
MOST_DIFFERENCE = 1e-5  # relative to the largest element, in float32

NAMED = ("gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "interleaved-zb", "zbv", "dualpipev", "v-half", "hanayo")
CASES = (*NAMED, "auto", "unequal", "own.csv", "fsdp")


def own_order(ranks):
    """Warms up with one micro-batch more than 1F1B, and keeps the weights' gradients of the first for the end."""
    rows = []
    for rank in range(ranks):
        ahead = min(MICRO_BATCHES, ranks - rank + 1)
        row = [f"{rank}F{m}" for m in range(ahead)]
        for m in range(MICRO_BATCHES):
            row += [f"{rank}I{m}"] + ([f"{rank}W{m}"] if m else [])
            row += [f"{rank}F{m + ahead}"] if m + ahead < MICRO_BATCHES else []
        rows.append(",".join([*row, f"{rank}W0"]))
    return pipewright.Order.parse("\n".join(rows) + "\n", name="own.csv")


def order_of(case, ranks):
    if case == "own.csv":
        return own_order(ranks)
    if case == "auto":
        return pipewright.schedule("auto", pp=ranks, micro_batches=MICRO_BATCHES, cost="F=5,B=9", mem=f"F=1,limit={ranks + 1}")
    return pipewright.schedule({"unequal": "1f1b", "fsdp": "zb-h1"}.get(case, case), pp=ranks, micro_batches=MICRO_BATCHES)


def cut_of(case, layers, stages):
    """[first, end) of each stage; the unequal one gives the first stage one layer."""
    ends = [layers * stage // stages for stage in range(stages + 1)]
    if case == "unequal":
        ends[1] = 1
    return list(zip(ends, ends[1:]))


def model_of(name):
    """With more layers than any case has stages, the example that it is captured with, its loss."""
    torch.manual_seed(22)
    if name == "gpt":
        return Gpt(blocks=5), gpt_batch(SAMPLES), loss_fn
    return Residual(), residual_batch(SAMPLES), torch.nn.functional.cross_entropy


def batch_of(name, replicas):
    torch.manual_seed(7)
    samples = MICRO_BATCHES * SAMPLES * replicas
    if name == "gpt":
        return torch.randint(WORDS, (samples, LENGTH)), torch.randint(WORDS, (samples, LENGTH))
    return torch.randn(samples, 3, 16, 16), torch.randint(10, (samples,))


@functools.cache
def captured_of(name):
    """A model, what capture() made of it, and its state before any training: most of a case's time is to capture."""
    model, example, _ = model_of(name)
    return model, pipewright.torch.capture(model, example[0], name=name), copy.deepcopy(model.state_dict())


def fits(name, case, ranks):
    """The ResNet has eight layers or fewer between which one tensor passes."""
    return order_of(case, ranks).stages <= len(captured_of(name)[1].layers)


def unpipelined(name, replicas):
    """Losses by update and micro-batch, gradients by name before the last update."""
    model, _, loss_of = model_of(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    inputs, targets = batch_of(name, replicas)
    losses = []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        count = MICRO_BATCHES * replicas
        steps = [loss_of(model(x), y) for x, y in zip(inputs.chunk(count), targets.chunk(count))]
        (sum(steps) / count).backward()
        losses.append([loss.item() for loss in steps])
        optimizer.step()
    return losses, {parameter: value.grad for parameter, value in model.named_parameters()}


def whole(value):
    return value.full_tensor() if isinstance(value, torch.distributed.tensor.DTensor) else value


def sharded(mesh):
    def parallelize(module, stage):
        for layer in module:
            if any(parameter.requires_grad for parameter in layer.parameters()):
                fully_shard(layer, mesh=mesh, reshard_after_forward=False)  # W needs the weights that F used
        fully_shard(module, mesh=mesh, reshard_after_forward=False)

    return parallelize


def trained(rank, name, case, ranks, replicas, profile):
    """Losses by update, gradients by name before the last one, what ran in the first step, and the plan's row."""
    _, _, loss_of = model_of(name)
    model, captured, untrained = captured_of(name)
    model.load_state_dict(untrained)
    order = order_of(case, ranks)
    options, place, replica = {}, rank, 0
    if replicas > 1:
        mesh = init_device_mesh("cpu", (ranks, replicas), mesh_dim_names=("pp", "dp"))
        place, replica = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
        options = {"group": mesh["pp"].get_group(), "parallelize": sharded(mesh["dp"])}
    cut = cut_of(case, len(captured.layers), order.stages)
    plan = pipewright.plan_of_order(order, captured.model, profile, cut, SAMPLES)
    places = {
        key: (layer, name)
        for key, value in model.named_parameters()
        for layer, (_, module) in enumerate(captured.layers)
        for name, one in module.named_parameters()
        if one is value
    }
    stages = pipewright.torch.split(captured, plan, **options)
    pipeline = pipewright.torch.schedule(plan, stages, loss_of)
    assert pipewright.torch.check(pipeline)
    layers = [layer for stage in order.stages_of(place) for layer in range(*cut[stage])]
    parameters = {key: of_layer(captured, *where) for key, where in places.items() if where[0] in layers}
    optimizer = torch.optim.SGD([value for stage in stages for value in stage.submod.parameters()], lr=RATE)
    part = slice(replica * MICRO_BATCHES * SAMPLES, (replica + 1) * MICRO_BATCHES * SAMPLES)
    inputs, targets = (each[part] for each in batch_of(name, replicas))
    losses, ran = [], None
    for update in range(UPDATES):
        optimizer.zero_grad()
        if update == 0:
            found, ran = traced_step(pipeline, inputs, targets)
        else:
            found = step_on(pipeline, inputs, targets)
        losses.append(found)
        gradients = {key: whole(value.grad).clone() for key, value in parameters.items()}
        optimizer.step()
    return losses, gradients, ran, plan.order.rows[place], replica


def of_layer(captured, layer, name):
    """As it is now: fully_shard() puts others in the place of a module's parameters."""
    return captured.layers[layer][1].get_parameter(name)


def all_cases(rank, name, cases, ranks, replicas):
    _, example, loss_of = model_of(name)
    profile = pipewright.torch.measure(captured_of(name)[1], [example], loss_of, repeats=1)
    return [trained(rank, name, case, ranks, replicas, profile) for case in cases]


class Trained(unittest.TestCase):
    def compare(self, name, cases, ranks, replicas=1):
        wanted_losses, wanted = unpipelined(name, replicas)
        by_rank = run_job(ranks * replicas, all_cases, name, cases, ranks, replicas)
        for case, *found in zip(cases, *by_rank):
            where = f"{name}, {case}, {ranks} ranks"
            gradients = {}
            for losses, own, ran, row, replica in found:
                self.assertEqual([action for action in ran if action in row], [action for action in row if action], where)
                gradients.update(own)
                for mine, theirs in zip(losses, wanted_losses, strict=True):
                    part = theirs[replica * MICRO_BATCHES : (replica + 1) * MICRO_BATCHES]
                    for a, b in zip(mine, part):
                        self.assertLess(abs(a - b) / max(theirs), MOST_DIFFERENCE, where)
            self.assertEqual({len(step) for losses, *_ in found for step in losses}, {0, MICRO_BATCHES}, where)
            self.assertEqual(set(gradients), set(wanted), where)
            off = difference([list(gradients.values())], [[wanted[key] for key in gradients]])
            self.assertLess(off, MOST_DIFFERENCE, where)
            print(f"{where}: gradients before update {UPDATES} off by {off:.1e}")

    def all_of(self, name, ranks):
        cases = [case for case in CASES if case != "fsdp" and fits(name, case, ranks)]
        self.compare(name, sampled(cases, inner=True), ranks)

    def test_gpt_on_two(self):
        self.all_of("gpt", 2)

    def test_gpt_on_four(self):
        self.all_of("gpt", 4)

    def test_resnet_on_two(self):
        self.all_of("resnet", 2)

    def test_resnet_on_four(self):
        self.all_of("resnet", 4)

    def test_gpt_with_shards_of_fsdp(self):
        self.compare("gpt", ["fsdp"], 2, replicas=2)


if __name__ == "__main__":
    unittest.main()
