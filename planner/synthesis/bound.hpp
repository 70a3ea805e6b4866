// A value below which no order of the problem is, whatever its micro-batches' order. Integer ns.
//
// Every timetable of every order can be numbered so that micro-batches are in order at each stage
// (planner/synthesis/problem.hpp), so it is enough to bound those. Let e(x) be a time before which
// x cannot start, counted from the first start of rank r for the span (upstream ranks may be far
// ahead: all inputs of the rank's first stage are there), from the start of the step for the
// makespan.
//
// 1. Chains: F of a stage after F of the stage before, I after I of the stage after, each with its
//    latency; I after F, W after I, the k-th after the (k-1)-th.
// 2. Memory as precedence. When F of micro-batch k starts on stage s, k+1 micro-batches have begun
//    on s and on the rank's earlier stages T. If x of them have had their I on s, no more have had
//    it on T, so the rank holds at least Σ_T ((k+1-x)·f + x·l), with f what an activation takes
//    and l the least that is left of it after its I. That is within the limit only if x is large
//    enough; so the I's before x come before this F. In the same way y W's of stage s come before
//    it. If W's are what is short, more I's can take their place, or the other way round: F comes
//    after the best of these choices. (ZB-H1's turn-around is such a case: with room for p
//    activations, F of p waits for W of 0.)
// 3. Work as precedence. What has to come before x on its own rank has to fit between a moment
//    before which none of it can start and x. Two moments are used: the rank's first F, and the
//    rank's first I. The idle time of the warm-up (first F out, first gradient back), the rate of
//    the slowest stage and the drain (last F out, last gradient back, with only so many
//    micro-batches in memory to work on meanwhile) all follow from these two. Before the first I
//    nothing has been given back, so only F's that fit into memory together can be there.
// 4. One machine: a rank works off its actions, none before its e(x); what ends last is not
//    earlier than when they are taken in order of e. For the makespan, once more without the W's
//    and with the way of the last gradient down to stage 0.
// 5. Memory times time (Little's law): micro-batch and stage hold f from F to the end of I, which
//    takes the way to the last stage and back at least, then what I leaves until the end of W. The
//    sum over all is at most limit · span.
//
// 2 and 5 are used on ranks where F takes memory and no action makes what is held negative.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/synthesis/problem.hpp"

namespace pipewright::planner::synthesis {

/// Point 2: by stage * micro_batches + k, how many I's and W's of the stage come before its F of k
/// (at most micro_batches).
struct MemoryPrecedence {
  std::vector<int> inputs, weights;
};
MemoryPrecedence memory_precedence(const Problem& problem);

/// O(actions · ranks) for the span, O(actions) for the makespan, and a sort.
std::int64_t lower_bound(const Problem& problem);

}  // namespace pipewright::planner::synthesis
