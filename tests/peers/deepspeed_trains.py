"""A plan trained by DeepSpeed 0.19 over gloo, from what `pipewright export --format deepspeed` writes: two unequal stages
beside two replicas that divide their optimizer's state. It loses and ends as the same model does in one process. Exit
status 77 (skipped) where DeepSpeed is missing.

usage: deepspeed_trains.py PIPEWRIGHT
"""

import json
import os
import subprocess
import sys
import tempfile

from planned import SKIPPED, exported, why_no_deepspeed

STEPS, WIDTH = 3, 16
MOST_DIFFERENCE = 1e-6
JOB = {
    "schema": "pipewright.job/1",
    "model": {
        "schema": "pipewright.model/1",
        "name": "chain",
        "loss": "mse",
        "layers": [{"kind": "linear", "in": WIDTH, "out": WIDTH} for _ in range(6)],
    },
    "cluster": {"preset": "local-cpu", "devices": 4},
    "global_batch": 16,
    "training": {"optimizer": "sgd", "learning_rate": 0.5},
    "strategy": {"pp_degree": 2, "dp_degree": 2, "micro_batch_size": 2, "schedule_mode": "1F1B"},
}


def plan_of(command, folder):
    """With two layers in the first stage and four in the second, and ZeRO 1."""
    path = os.path.join(folder, "plan.json")
    with open(os.path.join(folder, "job.json"), "w") as file:
        json.dump(JOB, file)
    subprocess.run([command, "tune", file.name, "-o", path, "-q"], check=True, stdout=subprocess.DEVNULL)
    with open(path) as file:
        plan = json.load(file)
    for stage, layers in zip(plan["stages"], ([0, 2], [2, 6])):
        stage["layers"] = layers
    plan["sharding_stage"] = 1
    with open(path, "w") as file:
        json.dump(plan, file)
    return path, plan


def layers():
    """The same weights in every process."""
    import torch

    torch.manual_seed(1)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(6)]


def batch(step):
    import torch

    torch.manual_seed(100 + step)
    return torch.randn(16, WIDTH), torch.randn(16, WIDTH)


def train(rank, world, folder, config, plan):
    import torch

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), DS_ACCELERATOR="cpu")
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    import deepspeed
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.pipe.topology import ProcessTopology

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # compiled for a minute; without it gloo sends
    deepspeed.init_distributed("gloo", dist_init_required=False, auto_mpi_discovery=False)
    own = config["pipewright"]

    class Planned(PipelineModule):
        def _partition_layers(self, method):
            self.parts = own["parts"]
            self._set_bounds(self.parts[self.stage_id], self.parts[self.stage_id + 1])

    module = Planned(layers(), topology=ProcessTopology(**own["topology"]), loss_fn=torch.nn.functional.mse_loss)
    engine, *_ = deepspeed.initialize(model=module, config=config, model_parameters=list(module.parameters()))
    replica = engine.grid.get_data_parallel_rank()
    losses = []
    for step in range(STEPS):
        x, y = (part.chunk(2)[replica].chunk(plan["micro_batches"]) for part in batch(step))
        losses.append(float(engine.train_batch(data_iter=iter(zip(x, y)))))
    torch.save((losses, engine.zero_optimization_stage(), module.state_dict()), f"{folder}/result{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def trained_alone():
    import torch

    model = torch.nn.Sequential(*layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=JOB["training"]["learning_rate"])
    losses = []
    for step in range(STEPS):
        x, y = batch(step)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


def main():
    if why := why_no_deepspeed():
        print(f"skipped: {why}")
        return SKIPPED
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path, plan = plan_of(sys.argv[1], folder)
        document, notes = exported(sys.argv[1], path, "deepspeed")
        if document is None:
            print(f"refused: {notes}")
            return 1
        torch.multiprocessing.spawn(train, (4, folder, document, plan), nprocs=4)
        results = [torch.load(os.path.join(folder, f"result{rank}")) for rank in range(4)]
    losses, wanted = trained_alone()
    failed, seen = 0, set()
    for rank, (found, zero, parameters) in enumerate(results):
        off = max(abs(a - b) / b for a, b in zip(found, losses))
        apart = max((parameters[name] - wanted[name]).abs().max().item() for name in parameters)
        seen |= parameters.keys()
        failed += off > MOST_DIFFERENCE or apart > MOST_DIFFERENCE or zero != 1
        print(f"rank {rank}: ZeRO {zero}, losses {found}, off by {off:.1g}, parameters by {apart:.1g}")
    return 1 if failed or seen != wanted.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
