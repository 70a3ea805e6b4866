// What no order of a configuration beats, from the way of a micro-batch: up through all stages and
// back, with the messages between them. Pure functions; nanoseconds.
//
// All m micro-batches have the same way. A rank, or a wire that moves one message at a time, is
// busy for m·a with what takes `a` of it on a stretch of that way; before, the first micro-batch
// has to get there (head), and behind the last one the rest of the way is to go and gradients are
// to be exchanged (tail). head + m·a + tail is the bound of one machine with heads and tails
// (Carlier, European Journal of Operational Research 11, 1982), here of each stretch.
//
// And a rank that holds w activations at most, each of them for as long as the way from its F to
// its B at least, lets go of w of them in that time at best, however the rest is arranged.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/plan/plan.hpp"
#include "planner/bounds/wires.hpp"
#include "planner/branches/space.hpp"

namespace pipewright::planner {

/// The largest of step_bound() and, where each stage is on one rank, of the above for each of the
/// replicas. `costs`: by stage, with what they exchange at least.
std::int64_t flow_bound(const Configuration& configuration, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs, const std::vector<Wires>& wires,
                        Sending sending);

}  // namespace pipewright::planner
