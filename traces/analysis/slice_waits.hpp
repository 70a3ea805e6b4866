// What another tool's slice of a computation holds besides the computation. PyTorch's runtime waits
// for an action's input inside the action's own slice, so that the slice begins before the work
// does; this takes the waiting out of it, by what the trace shows inside and beside the slice.
#pragma once

#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// What a process of the trace shows besides its actions. In any order.
struct SliceSurroundings {
  std::vector<TimeRange> receives;   // of the back end ("gloo:recv"): from issue to end of wait
  std::vector<TimeRange> operators;  // that compute ("aten::mm", a kernel); those inside others too
  bool on_device = false;            // times of actions are those of their kernels
};
/// By time, operators that touch made one. O(n log n).
SliceSurroundings in_order(SliceSurroundings around);

/// What happens beside the rank's spans plays no part. Moves the start of each computation past the
/// time that it waits, and fills `waits`, `posts` and `wait_rule` of the rank. A RECV ends with the
/// back end's receive that begins inside its slice; the back end's slices of sends are not used,
/// because they may begin long after the message has come. The first rule of WaitRule that the
/// trace allows applies. Receives: the computation waits, for each receive that it needs, from the
/// last operator before that receive's end until that end. Operators: it waits from the slice's
/// start until the first operator inside it. A wait in the middle of a slice (the second input of
/// an overlapped pair) counts at its start. `around` is in_order(), of all steps of the rank; they
/// may be many more than the spans of this one: O(spans log n).
void separate_waits(TraceRank& rank, const SliceSurroundings& around);

/// The rule where neither receives nor operators are shown and there are several ranks: no
/// computation begins before what feeds it on another rank has ended. For ranks without a rule.
void separate_waits_by_producers(TraceTimeline& trace);

/// "receives", "operators", …
std::string_view to_string(WaitRule rule);

}  // namespace pipewright::traces
