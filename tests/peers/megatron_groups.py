"""What `pipewright export --format megatron` writes, given to Megatron core 0.16: its own code makes the plan's groups of
ranks, and puts the plan's layers where the plan has them. Exit status 77 (skipped) where it is missing.

usage: megatron_groups.py PIPEWRIGHT
"""

import itertools
import sys
import tempfile

from planned import SKIPPED, differences, exported, groups_of, plans, words_of


def flags_of(text):
    """{"--micro-batch-size": "1", "--bf16": True}"""
    flags, last = {}, None
    for word in words_of(text, "PARALLEL_ARGS", "TRAINING_ARGS", "MODEL_ARGS"):
        if word.startswith("--"):
            last = word
        flags[last] = True if word == last else word
    return flags


def initialize(flags):
    """As megatron/training/initialize.py calls it."""
    from megatron.core import parallel_state as state

    state.initialize_model_parallel(
        int(flags["--tensor-model-parallel-size"]),
        int(flags["--pipeline-model-parallel-size"]),
        context_parallel_size=int(flags.get("--context-parallel-size", 1)),
        expert_model_parallel_size=int(flags.get("--expert-model-parallel-size", 1)),
        expert_tensor_parallel_size=int(flags["--expert-tensor-parallel-size"]) if "--expert-tensor-parallel-size" in flags else None,
        order="tp-cp-ep-pp-dp" if "--use-tp-pp-dp-mapping" in flags else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )


def groups_by_megatron(flags, world):
    """Of every rank of so many, without their processes."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    names = {
        "tp": state.get_tensor_model_parallel_group,
        "cp": state.get_context_parallel_group,
        "dp": state.get_data_parallel_group,
        "pp": state.get_pipeline_model_parallel_group,
        "dp-cp": lambda: state.get_data_parallel_group(with_context_parallel=True),
        "ep": state.get_expert_model_parallel_group,
        "edp": state.get_expert_data_parallel_group,
        "expert tp": state.get_expert_tensor_parallel_group,
    }
    found = {name: set() for name in names}
    for rank in range(world):
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        initialize(flags)
        for name, group in names.items():
            found[name].add(tuple(sorted(dist.get_process_group_ranks(group()))))
        state.destroy_model_parallel()
        dist.destroy_process_group()
    return found


def stages_by_megatron(flags):
    """Of each rank, of each of its chunks: (embeddings, blocks, heads)."""
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

    ranks = int(flags["--pipeline-model-parallel-size"])
    layout = PipelineParallelLayerLayout.from_str(flags["--pipeline-model-parallel-layout"], ranks)
    kinds = (LayerType.embedding, LayerType.decoder, LayerType.loss)
    return [[tuple(map(chunk.count, kinds)) for chunk in chunks] for chunks in layout.layout]


def stages_of(plan):
    last = plan["stages"][-1]["layers"][1] - 1
    ranks = dict(zip(plan["mesh"]["dim_names"], plan["mesh"]["shape"]))["pp"]
    found = [[] for _ in range(ranks)]
    for stage in plan["stages"]:
        layers = range(*stage["layers"])
        ends = (int(0 in layers), int(last in layers))
        found[stage["rank"]].append((ends[0], len(layers) - sum(ends), ends[1]))
    return found


def stops(world, **sizes):
    """Whether Megatron core makes no groups of these sizes with replicas outermost, and does with the pipeline outermost."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    flags = {f"--{name.replace('_', '-')}-size": str(size) for name, size in sizes.items()}
    said = []
    for more in ({"--use-tp-pp-dp-mapping": True}, {}):
        dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
        try:
            initialize({**flags, **more})
            said.append("")
        except AssertionError as error:
            said.append(str(error))
        state.destroy_model_parallel()
        dist.destroy_process_group()
    if said[1]:
        raise AssertionError(said[1])
    return "the data parallel size of the attention and moe layers must be the same" in said[0]


def refusal_is_needed():
    """docs/findings.md: ours of replicas outermost, at every size of 2, 4 and 8 ranks with whole experts."""
    wrong = 0
    for world, tp, cp, pp, ep in itertools.product((2, 4, 8), *[(1, 2, 4)] * 4):
        if world % (tp * cp * pp) or world % (tp * ep * pp):
            continue
        names = ("tensor_model_parallel", "context_parallel", "pipeline_model_parallel", "expert_model_parallel")
        stopped = stops(world, **dict(zip(names, (tp, cp, pp, ep))))
        expected = pp > 1 and cp != ep  # the experts' tp is tp unless it is given
        wrong += stopped != expected
        if stopped and world <= 4 or stopped != expected:
            print(f"{world} ranks, tp {tp}, cp {cp}, pp {pp}, ep {ep}: {'stops' if stopped else 'starts'} with --use-tp-pp-dp-mapping")
    return wrong == 0


def problem_of(plan, flags):
    world = len(plan["mesh"]["devices"])
    problem = differences(groups_of(plan), groups_by_megatron(flags, world))
    if problem or "--pipeline-model-parallel-layout" not in flags:
        return problem
    return differences({"stages": stages_of(plan)}, {"stages": stages_by_megatron(flags)})


def main():
    try:
        import megatron.core
    except ImportError as error:
        print(f"skipped: Megatron core is not installed here ({error})")
        return SKIPPED
    if not megatron.core.__version__.startswith("0.16"):
        print(f"skipped: this is Megatron core {megatron.core.__version__}, and the flags are of 0.16")
        return SKIPPED
    failed = 0 if refusal_is_needed() else 1
    with tempfile.TemporaryDirectory() as folder:
        for name, path, plan in plans(sys.argv[1], folder):
            text, why = exported(sys.argv[1], path, "megatron")
            problem = f"refused: {why}" if text is None else problem_of(plan, flags_of(text))
            failed += problem is not None
            print(f"{name}: {problem or 'the groups and the stages of the plan'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
