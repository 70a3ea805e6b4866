// Branch and bound: finds the best order of a small problem and proves it.
//
// Only orders in which every stage takes its micro-batches in order are looked at. For the makespan
// that loses nothing (planner/synthesis/problem.hpp). For the span it loses nothing as long as
// ranks may also start later than they could; where they start as early as they can, as the engine
// does, an order could in principle gain by taking micro-batches out of order only to hold a rank's
// first action back. The authors' integer program for the zero-bubble schedules looks at orders in
// order, too.
//
// Branching (after Giffler and Thompson's active schedules, Operations Research 8, 1960): of all
// actions that could be next, the one that could end first, x on rank r, ends at c. Nothing that
// cannot be next now starts before c, so either an action that starts before c is next on r, or x
// could be put before what comes next without delay. The latter is never better if x gives memory
// back or the rank has room for everything. Where x takes memory (F under a limit) one more branch
// leaves x out until r has taken something else. If rank starts depend on the order, as with some
// explicit placements, starting early can lengthen the span; then every action of r that could be
// next is a branch, and the one that leaves them all out.
//
// A node is dropped if a bound (chains and one-machine bounds from the state reached, with memory
// as precedence as in planner/synthesis/bound.hpp) is not below the best value, or if a state with
// the same actions done was there before with no rank and no arrival later.
#pragma once

#include <cstdint>

#include "planner/synthesis/search.hpp"

namespace pipewright::planner::synthesis {

/// Improves search.best and, if it comes to its end within `nodes` nodes, returns true: then no
/// order in order is better. Each node that is looked at counts `nodes` down by one.
bool prove(Search& search, std::int64_t& nodes);

}  // namespace pipewright::planner::synthesis
