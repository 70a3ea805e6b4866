"""What `pipewright export --format deepspeed` writes, given to DeepSpeed 0.19: its own configuration has the plan's batch,
ZeRO stage and degrees, its own code makes the plan's groups of ranks and stages of it, and its own schedule computes in
the plan's order. Exit status 77 (skipped) where it is missing.

usage: deepspeed_groups.py PIPEWRIGHT
"""

import contextlib
import io
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile

from planned import JOBS, SKIPPED, differences, exported, groups_of, job, plans, why_no_deepspeed

ASKED = {
    **JOBS,
    "tensor parallel": job("llama3-8b", 16, 32, mp_degree=4, pp_degree=1),
    "tensor parallel, ZeRO 3": job("llama3-8b", 16, 32, mp_degree=2, pp_degree=1, sharding_stage=3),
    "eight stages": job("llama3-8b", 8, 32, pp_degree=8),
}
# What DeepSpeed cannot do, and a word of the sentence in which the export says so.
REFUSED = {
    "all four": "ring of context parallel ranks",
    "experts and contexts": "ring of context parallel ranks",
    "interleaved": "runs 1f1b",
}


def start(rank, world):
    """As one rank of so many, without their processes."""
    import deepspeed
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    deepspeed.comm.comm.cdb = None
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    deepspeed.init_distributed("gloo", dist_init_required=False, auto_mpi_discovery=False)


def stop():
    import torch.distributed as dist
    from deepspeed.utils import groups

    groups._release_process_group_references()
    dist.destroy_process_group()


def grid_of(document):
    """What DeepSpeed makes of the topology in the file; None: the file has no pipeline."""
    from deepspeed.runtime.pipe.topology import PipelineParallelGrid, ProcessTopology

    own = document["pipewright"]
    return PipelineParallelGrid(ProcessTopology(**own["topology"])) if "topology" in own else None


def groups_of_rank(rank, plan, document, grid):
    """Its groups as deepspeed.initialize and deepspeed.moe make them."""
    import torch.distributed as dist
    from deepspeed.moe.layer import MoE
    from deepspeed.utils import groups
    from torch import nn

    def ranks(group):
        return tuple(sorted(dist.get_process_group_ranks(group)))

    found = {"pp": (rank,)}
    if grid is not None:
        found["pp"], found["dp"] = ranks(grid.get_pipe_parallel_group()), ranks(grid.get_data_parallel_group())
        found["tp"] = ranks(grid.get_slice_parallel_group())
    else:
        groups._init_tp_mesh_device(document.get("tensor_parallel", {}).get("autotp_size", 1))
        found["dp"], found["tp"] = ranks(groups.get_data_parallel_group()), ranks(groups.get_tensor_model_parallel_group())
    experts = plan.get("expert_parallel", 1)
    if experts > 1:
        groups.mpu = grid
        whole = plan.get("expert_tensor_parallel", 0) == 1
        layer = MoE(4, nn.Linear(4, 4), experts, ep_size=experts, enable_expert_tensor_parallelism=not whole)
        layer.set_deepspeed_parallelism()
        name = layer.expert_group_name
        found["ep"] = ranks(groups._get_expert_parallel_group(name))
        found["edp"] = ranks(groups._get_expert_data_parallel_group(name))
    return found


def stages_of(plan, document):
    """{method: bounds} as PipelineModule cuts the plan's layers: as told, and by type where the blocks are dealt evenly."""
    from deepspeed.pipe import LayerSpec, PipelineModule
    from deepspeed.runtime.pipe.topology import ProcessTopology
    from torch import nn

    class Planned(PipelineModule):
        def _partition_layers(self, method):
            self.parts = document["pipewright"]["parts"]
            self._set_bounds(self.parts[self.stage_id], self.parts[self.stage_id + 1])

    class Block(nn.Identity):
        pass

    layers = plan["stages"][-1]["layers"][1]
    specs = [LayerSpec(nn.Identity), *[LayerSpec(Block) for _ in range(layers - 2)], LayerSpec(nn.Identity)]
    topology = ProcessTopology(**document["pipewright"]["topology"])
    found = {"as told": Planned(specs, topology=topology).partitions()}
    blocks = [end - first for first, end in (stage["layers"] for stage in plan["stages"])]
    blocks[0], blocks[-1] = blocks[0] - 1, blocks[-1] - 1
    if len(set(blocks)) == 1:
        found["by type"] = PipelineModule(specs, topology=topology, partition_method="type:Block").partitions()
    return {method: [int(part) for part in parts] for method, parts in found.items()}


def order_of(micro_batches, stages, transfers=False):
    """The computations of DeepSpeed's schedule, and its transfers, as a CSV has them."""
    from deepspeed.runtime.pipe import schedule

    kinds = {schedule.ForwardPass: "F", schedule.BackwardPass: "B"}
    if transfers:
        kinds |= {schedule.SendActivation: "SEND_F", schedule.RecvActivation: "RECV_F"}
        kinds |= {schedule.SendGrad: "SEND_B", schedule.RecvGrad: "RECV_B"}
    rows = []
    for stage in range(stages):
        done = dict.fromkeys(kinds.values(), 0)
        row = []
        for commands in schedule.TrainSchedule(micro_batches, stages, stage):
            for kind in [kinds[type(command)] for command in commands if type(command) in kinds]:
                row.append(f"{stage}{kind}{done[kind]}")
                done[kind] += 1
        rows.append(",".join(row))
    return rows


def lists_that_end(command, folder):
    """docs/presets.md: how many of DeepSpeed's own lists `check` says end where each call holds up what is computed behind
    it, and of how many; one communicator for all, or one for each pair of ranks."""
    path, ended, asked = os.path.join(folder, "list.csv"), 0, 0
    for stages, micro_batches, channel in itertools.product(range(2, 7), range(1, 11), ("rank", "pair")):
        with open(path, "w") as file:
            file.write("\n".join(order_of(micro_batches, stages, transfers=True)) + "\n")
        words = [command, "check", path, "--issue", "inline", "--channel", channel, "--protocol", "rendezvous", "-q"]
        ended += subprocess.run(words, stdout=subprocess.DEVNULL).returncode == 0
        asked += 1
    return ended, asked


def configured(document, grid):
    """Read by DeepSpeed from a file."""
    from deepspeed.runtime.config import DeepSpeedConfig

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        return DeepSpeedConfig(file.name, mpu=grid)


def stops_at_batch(document, samples):
    """docs/findings.md: whether it stops beside tensor_parallel at the number of samples that a step has."""
    try:
        configured({**document, "train_batch_size": samples}, None)
    except AssertionError as error:
        return "Check batch related parameters" in str(error)
    return False


def problem_of(command, path, plan, document):
    sizes = dict(zip(plan["mesh"]["dim_names"], plan["mesh"]["shape"]))
    pipeline, replicas, tensor = sizes.get("pp", 1), sizes.get("dp", 1), sizes.get("tp", 1)
    world = len(plan["mesh"]["devices"])
    names = ("tp", "dp", "pp", *(("ep", "edp") if plan.get("expert_parallel", 1) > 1 else ()))
    groups = groups_of(plan)
    expected = {name: groups[name] for name in names}
    expected["micro-batch"], expected["micro-batches"] = plan["micro_batch_size"], plan["micro_batches"]
    # As DeepSpeed counts, ranks that it divides layers among are replicas.
    counted = replicas * (tensor if pipeline == 1 else 1)
    expected["batch"] = plan["micro_batches"] * plan["micro_batch_size"] * counted
    expected["ZeRO"] = plan.get("sharding_stage", 0) if replicas > 1 else 0
    expected["tensor parallel"] = tensor if pipeline == 1 and tensor > 1 else 0
    found = {name: set() for name in names}
    for rank in range(world):
        os.environ["LOCAL_RANK"] = str(rank)
        start(rank, world)
        grid = grid_of(document)
        for name, ranks in groups_of_rank(rank, plan, document, grid).items():
            found[name].add(ranks)
        if rank == 0:
            config = configured(document, grid)
            found["micro-batch"] = config.train_micro_batch_size_per_gpu
            found["micro-batches"], found["batch"] = config.gradient_accumulation_steps, config.train_batch_size
            found["ZeRO"], found["tensor parallel"] = int(config.zero_optimization_stage), config.tensor_parallel_config.autotp_size
            if expected["tensor parallel"]:
                samples = plan["micro_batches"] * plan["micro_batch_size"] * replicas
                expected["stops at the batch"], found["stops at the batch"] = True, stops_at_batch(document, samples)
            if pipeline > 1:
                bounds = [stage["layers"][0] for stage in plan["stages"]] + [plan["stages"][-1]["layers"][1]]
                cuts = stages_of(plan, document)
                expected["stages"], found["stages"] = {method: bounds for method in cuts}, cuts
        stop()
    if pipeline > 1:
        expected["order"] = exported(command, path, "pytorch-csv")[0].split()
        found["order"] = order_of(plan["micro_batches"], pipeline)
    return differences(expected, found)


def main():
    if why := why_no_deepspeed():
        print(f"skipped: {why}")
        return SKIPPED
    import deepspeed

    deepspeed.utils.logger.setLevel(logging.ERROR)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # compiled for a minute, and nothing here sends
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        ended, asked = lists_that_end(sys.argv[1], folder)
        failed += ended != asked
        print(f"{ended} of {asked} of its own lists of transfers end")
        for name, path, plan in plans(sys.argv[1], folder, ASKED):
            document, why = exported(sys.argv[1], path, "deepspeed")
            if document is None or name in REFUSED:
                right = document is None and REFUSED.get(name, "?") in why[0]
                failed += not right
                print(f"{name}: {'refused: ' + why[0] if document is None else 'is not refused'}")
                continue
            with contextlib.redirect_stdout(io.StringIO()):  # where it says what it makes
                problem = problem_of(sys.argv[1], path, plan, document)
            failed += problem is not None
            print(f"{name}: {problem or 'the degrees, the groups, the stages and the order of the plan'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
