// Times of single actions in a synthesis (core/costs/action_times.hpp): the tables of the search,
// a replica's costs alone, and a value that no order is below. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/action_times.hpp"
#include "planner/synthesis/problem.hpp"

namespace pipewright::planner::synthesis {

/// Fills what Problem says of single actions, with micro-batches in the order of their numbers.
/// request.costs.actions is there.
void set_own_times(Problem& problem, const SynthesisRequest& request);

/// Orders of the computations that these rows name: of F and B where they name B and neither I nor
/// W, of F, I and W where they name no B but one of these. No orders are left out where they name
/// both, or none.
void search_what_is_named(const std::vector<ActionTime>& rows, SynthesisRequest& request);

/// How many replicas the times are of; 1 where there are none.
int replicas_of(const CostTable& costs);
/// The table with what this replica's actions take, as those of the only one.
CostTable costs_of_replica(const CostTable& costs, int replica);

/// No order has a value below, whatever turns its stages take micro-batches in; of several
/// replicas, the slowest. Two bounds of each replica:
/// 1. lower_bound() with each action as long as its shortest: every timetable stays one if actions
///    get shorter.
/// 2. For the makespan, one machine with heads and tails: a rank's actions, each not before its
///    micro-batch can have come there and with the rest of its micro-batch's way behind it, may be
///    interrupted. What has the longest tail goes first then (Jackson, 1955, in the version of
///    Carlier, European Journal of Operational Research 11, 1982), and no order is shorter.
///    For the span: the work of each rank.
/// O(actions · ranks), and a sort.
std::int64_t own_bound(const Problem& problem);

}  // namespace pipewright::planner::synthesis
