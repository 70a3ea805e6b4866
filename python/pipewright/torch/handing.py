"""What handing over one end of a message takes of a rank in the middle of a step: beside computations of all ranks, with
caches as these leave them, and with all that the processes do to one another."""

from __future__ import annotations

from typing import Any, Sequence

from .._core import Order
from .._core import schedule as schedule_of
from .chaining import chained
from .installed import require_torch
from .recording import Watch, watching
from .running import schedule


def order_for(ranks: int, layers: int, micro_batches: int) -> Order:
    """With two stages a rank, of which transfers are shorter apart, where there are layers for them."""
    if layers >= 2 * ranks and micro_batches % ranks == 0:
        return schedule_of("interleaved", pp=ranks, micro_batches=micro_batches, vpp=2)
    return schedule_of("1f1b", pp=ranks, micro_batches=micro_batches)


class SharedStep:
    """All layers, dealt out evenly in number, as a pipeline of all ranks of the group."""

    def __init__(self, layers: Sequence[tuple[str, Any]], micro_batches: int, loss_fn: Any, group: Any) -> None:
        torch = require_torch()
        rank = torch.distributed.get_rank(group)
        order = order_for(torch.distributed.get_world_size(group), len(layers), micro_batches)
        self.group, self.own = group, order.stages_of(rank)
        self.has_loss = order.stages - 1 in self.own
        ends = [len(layers) * stage // order.stages for stage in range(order.stages + 1)]
        stages = [
            torch.distributed.pipelining.PipelineStage(
                chained(layers[ends[stage] : ends[stage + 1]], layers), stage, order.stages, torch.device("cpu"), group=group
            )
            for stage in self.own
        ]
        self.pipeline = schedule(order, stages, loss_fn)
        self.actions = [str(one) for one in self.pipeline.pipeline_order_with_comms[rank] if one is not None]

    def run(self, inputs: tuple[Any, ...], named: dict[str, Any], targets: Any) -> list[int]:
        """What each end of a message took of this rank, in ns."""
        watch = Watch()
        require_torch().distributed.barrier(self.group)
        with watching(watch):
            self.pipeline.step(
                *(inputs if 0 in self.own else ()), target=targets if self.has_loss else None, losses=[], **named
            )
        return [
            handed - begin
            for action, handed, (begin, _, _) in zip(self.actions, watch.handed, watch.spans)
            if "SEND" in action or "RECV" in action
        ]
