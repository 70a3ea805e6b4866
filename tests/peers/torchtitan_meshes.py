"""What `pipewright export --format torchtitan` writes, given to torchtitan 0.3: its command line takes it, and the meshes
that it builds of it have the plan's groups of ranks. Exit status 77 (skipped) where it is missing.

usage: torchtitan_meshes.py PIPEWRIGHT
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import sys
import tempfile
from unittest.mock import MagicMock

from planned import SKIPPED, differences, exported, groups_of, plans, words_of

# What no configuration asks for, imported by its models all the same: logs, data sets, GPU kernels.
UNUSED = ("wandb", "datasets", "triton", "torch.utils.tensorboard")
ZERO = {1: "never", 2: "never", 3: "always"}


class Unused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules in which every name is there and does nothing."""

    def find_spec(self, name, path, target=None):
        if any(name == known or name.startswith(known + ".") for known in UNUSED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__name__, module.__spec__ = [], spec.name, spec
        return module

    def exec_module(self, module):
        pass


def configuration(text):
    """Of the flags in the file; a model that torchtitan lacks is one that it has."""
    from torchtitan.config.manager import ConfigManager

    words = words_of(text, "TITAN_ARGS")
    words = [part for word in words for part in word.split(" ")]
    if words[0] != "--module":
        words = ["--module", "llama3", "--config", "llama3_8b"] + words
    return ConfigManager().parse_args(words)


def refuses_graphs():
    """docs/findings.md: whether it stops at a pipeline of the configuration's defaults, and says why."""
    words = ["--module", "llama3", "--config", "llama3_8b", "--parallelism.pipeline_parallel_degree", "2"]
    from torchtitan.config.manager import ConfigManager

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            ConfigManager().parse_args(words)
    except SystemExit:
        ConfigManager().parse_args(words + ["--training.disable_cuda_graphs"])
        return "CUDA graphs do not support pipeline parallelism" in said.getvalue()
    return False


def groups_by_torchtitan(parallelism, world):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchtitan.distributed.parallel_dims import ParallelDims

    found = {name: set() for name in ("tp", "cp", "dp", "pp", "ep", "dp-cp")}
    for rank in range(world):
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        dims = ParallelDims.from_config(parallelism, world)
        dims.build_mesh()
        for name, axis in zip(found, ("tp", "cp", "batch", "pp", "ep", "loss")):
            mesh = dims.get_optional_mesh(axis)
            ranks = (rank,) if mesh is None else tuple(sorted(mesh.mesh.flatten().tolist()))
            found[name].add(ranks)
        dist.destroy_process_group()
    return found


def problem_of(plan, text):
    config = configuration(text)
    parallelism, training = config.parallelism, config.training
    sizes = dict(zip(plan["mesh"]["dim_names"], plan["mesh"]["shape"]))
    zero, replicas = plan.get("sharding_stage", 0), sizes.get("dp", 1)
    expected = {"global_batch_size": plan["micro_batches"] * plan["micro_batch_size"] * replicas}
    found = {"global_batch_size": training.global_batch_size, "zero": parallelism.fsdp_reshard_after_forward}
    if replicas > 1 and zero > 0:
        expected["zero"] = ZERO[zero]
    expected["stages"] = len(plan["stages"]) if sizes["pp"] > 1 else 1
    found["stages"] = len(parallelism.module_fqns_per_model_part or [[]])
    groups = groups_of(plan)
    names = ("tp", "cp", "dp", "pp", "dp-cp", "ep")
    expected.update((name, groups[name]) for name in names)
    found.update(groups_by_torchtitan(parallelism, len(plan["mesh"]["devices"])))
    return differences(expected, found)


def main():
    try:
        version = importlib.metadata.version("torchtitan")
        # PyTorch asks for triton itself, and does without.
        import torch._inductor.compile_fx  # noqa: F401
        import torch.distributed.tensor  # noqa: F401
        import torch.utils.flop_counter  # noqa: F401

        sys.meta_path.insert(0, Unused())
        import torchtitan.config.manager  # noqa: F401
    except (ImportError, importlib.metadata.PackageNotFoundError) as error:
        print(f"skipped: torchtitan is not installed here ({error})")
        return SKIPPED
    if not version.startswith("0.3."):
        print(f"skipped: this is torchtitan {version}, and the flags are of 0.3")
        return SKIPPED
    failed, compared = int(not refuses_graphs()), 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path, plan in plans(sys.argv[1], folder):
            text, notes = exported(sys.argv[1], path, "torchtitan")
            if text is None:
                print(f"{name}: refused: {notes[0]}")
            elif any("numbers ranks" in note for note in notes):
                print(f"{name}: a note says that its ranks stand in another order")
            else:
                problem = problem_of(plan, text)
                compared += 1
                failed += problem is not None
                print(f"{name}: {problem or 'the degrees, the groups and the number of stages of the plan'}")
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
