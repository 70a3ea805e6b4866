"""What `pipewright export --format paddle` writes, given to PaddlePaddle 3.3: its Strategy has the plan's values, and
fleet's topology of its hybrid_configs the plan's groups of ranks. Exit status 77 (skipped) where it is missing.

usage: paddle_groups.py PIPEWRIGHT
"""

import sys
import tempfile

from planned import SKIPPED, differences, exported, groups_of, plans

# fleet's own order (fleet/base/distributed_strategy.py), the last fastest, and the names of its degrees.
ORDER = ("dp", "pp", "sharding", "sep", "mp")


def groups_by_fleet(degrees, order):
    from paddle.distributed.fleet.base.topology import CommunicateTopology

    topology = CommunicateTopology(list(order), [degrees.get(axis + "_degree", 1) for axis in order])

    def groups(axis):
        return {tuple(sorted(group)) for group in topology.get_comm_list(axis)}

    replicas = {}
    for rank in range(topology.world_size()):
        place = topology.get_coord(rank)
        replicas.setdefault((place.pp, place.mp), []).append(rank)
    return {"tp": groups("mp"), "pp": groups("pp"), "dp": {tuple(sorted(group)) for group in replicas.values()}}


def order_of(notes):
    """Fleet's, or the one that a note says to set."""
    for note in notes:
        if "hybrid_configs.order to " in note:
            return tuple(note.split("hybrid_configs.order to ")[1].split(", "))
    return ORDER


def problem_of(plan, document, notes):
    import paddle.distributed as dist

    groups = groups_of(plan)
    found = groups_by_fleet(document["hybrid_configs"], order_of(notes))
    strategy = dist.Strategy(dict(document))
    expected = {name: groups[name] for name in ("tp", "pp", "dp")}
    ranks = dict(zip(plan["mesh"]["dim_names"], plan["mesh"]["shape"]))
    zero = plan.get("sharding_stage", 0) if ranks.get("dp", 1) > 1 else 0
    expected["zero"] = (zero > 0, zero or strategy.sharding.stage)
    found["zero"] = (strategy.sharding.enable, strategy.sharding.stage)
    expected["micro_batches"] = (plan["micro_batches"], plan["micro_batch_size"], ranks["pp"] > 1)
    pipeline = strategy.pipeline
    found["micro_batches"] = (pipeline.accumulate_steps, pipeline.micro_batch_size, pipeline.enable)
    return differences(expected, found)


def main():
    try:
        import paddle.distributed.fleet  # noqa: F401
    except ImportError as error:
        print(f"skipped: PaddlePaddle is not installed here ({error})")
        return SKIPPED
    failed = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path, plan in plans(sys.argv[1], folder):
            document, notes = exported(sys.argv[1], path, "paddle")
            if document is None:
                print(f"{name}: refused: {notes[0]}")
                continue
            problem = problem_of(plan, document, notes)
            compared += 1
            failed += problem is not None
            print(f"{name}: {problem or 'the degrees and the groups of the plan'}")
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
