"""What a message between two ranks takes, sent as PyTorch's runtime sends it."""

from __future__ import annotations

import time
from typing import Any, Sequence

from .installed import require_torch

PINGS_EACH = 4  # a repeat
LEAST_PART = 8  # the smallest message that is sent is such a part of the least one of the model


class Link:
    """Between this rank and one other."""

    def __init__(self, group: Any, other: int) -> None:
        self.torch = require_torch()
        self.group, self.other = group, other
        self.schedules = self.torch.distributed.pipelining.schedules

    def issue(self, operation: Any, tensor: Any) -> tuple[Any, int]:
        """The works, and the host's time for it."""
        dist = self.torch.distributed
        began = time.perf_counter_ns()
        works = self.schedules._batch_p2p([dist.P2POp(operation, tensor, self.other, self.group)])
        return works, time.perf_counter_ns() - began

    def ping(self, tensor: Any, is_first: bool) -> tuple[list[int], int]:
        """There and back: what handing over each end took, and the half of it without the sender's share."""
        dist = self.torch.distributed
        issues = []
        began = time.perf_counter_ns()
        for operation in (dist.isend, dist.irecv) if is_first else (dist.irecv, dist.isend):
            works, took = self.issue(operation, tensor)
            issues.append(took)
            self.schedules._wait_batch_p2p(works)
        whole = time.perf_counter_ns() - began
        return issues, max(0, whole // 2 - issues[0])


def measure_transfers(group: Any, messages: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """By size of the message: "issue" of either end and "way", in ns, where nobody computes. Neighbours do it in pairs, all of them at once;
    what a rank that is left over has to say are lists of no samples."""
    torch = require_torch()
    dist = torch.distributed
    ranks = dist.get_process_group_ranks(group)
    place = ranks.index(dist.get_rank())
    partner = place ^ 1
    found = []
    for size in sorted({max(4, min(messages) // LEAST_PART), max(messages)}):
        samples: dict[str, Any] = {"bytes": size, "issue": [], "way": []}
        tensor = torch.zeros(size, dtype=torch.uint8)
        dist.barrier(group)
        if partner < len(ranks):
            link = Link(group, ranks[partner])
            for ping in range((repeats + 1) * PINGS_EACH):
                issues, way = link.ping(tensor, place < partner)
                if ping < PINGS_EACH:
                    continue
                samples["issue"] += issues
                if place < partner:
                    samples["way"].append(way)
        found.append(samples)
    return found
