// What no order of a configuration beats, from the way of a micro-batch: up through all stages and
// back, with the messages between them. Pure functions; nanoseconds.
//
// All m micro-batches have the same way. Where a stretch of it keeps a rank, or a wire that moves
// one message at a time, busy for `a`, all of them keep it busy for m·a. Before that the first
// micro-batch has to get there (head); after it the last one has to go the rest of the way and
// gradients have to be exchanged (tail). head + m·a + tail is the bound of one machine with heads
// and tails (Carlier, European Journal of Operational Research 11, 1982), here for each stretch.
//
// Also, a rank holds at most w activations, each for at least the time from its F to the end of its
// B. In that time it lets go of w of them at best, however the rest is arranged. The same in bytes:
// each takes F's bytes from there to the end of its I, and what I leaves until the end of its W;
// all of them together, bytes times time, have to lie within what the rank has room for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/plan/plan.hpp"
#include "planner/bounds/wires.hpp"
#include "planner/branches/space.hpp"

namespace pipewright::planner {

/// What ranks have room for.
struct Room {
  std::vector<Bytes> left;          // by rank, beside its state; empty: no limit
  std::vector<StageMemory> memory;  // by stage
};

/// The larger of step_bound() and, where each stage is on one rank, the bounds above for each of
/// the replicas. `costs`: by stage, with what they exchange at least. `on_way`: what a micro-batch
/// itself takes there, where messages inside it go beside the computations of another; empty: no
/// more than `costs`.
std::int64_t flow_bound(const Configuration& configuration, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs, const std::vector<Wires>& wires,
                        Sending sending, const Room& room = {},
                        std::span<const StageCosts> on_way = {});

}  // namespace pipewright::planner
