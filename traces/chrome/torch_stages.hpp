// PyTorch's schedules of one stage a rank (ScheduleGPipe, Schedule1F1B) in its profiler's traces.
// They do not name their actions as the runtime of the others does: ScheduleGPipe has slices
// "Forward 3" and "Backward 3", which hold the messages too; Schedule1F1B has none, but its
// operators and messages say what it did.
#pragma once

#include "traces/analysis/trace_timeline.hpp"
#include "traces/events/raw_trace.hpp"

namespace pipewright::traces {

/// Whether name_torch_stages() looks at an event; shortens the names of operators of autograd, of
/// which there are many.
bool is_of_torch_stages(RawEvent& event);

/// Gives the actions and messages of a rank their names, "2F3", "2SEND_F3"; adds the slices that
/// are missing. The stage is the rank, for now. False where a slice names an action already, or the
/// trace is none of these.
///
/// Where there are no slices: a backward is a run of autograd's operators. On the last stage a
/// forward is the run of others before it. On another one it is a run that a send follows, and but
/// for the first stage a receive precedes. Micro-batches count from 0 in each step, which
/// "ProfilerStep#7" or the optimizer's slices bound. A step with other numbers of forwards than of
/// backwards is left out.
bool name_torch_stages(RawTrace& trace, int rank);

/// Of all ranks of such a pipeline: its stages, in the order of the ranks. Ranks of which some are
/// missing keep their numbers. Throws InputError where two replicas are together.
void number_torch_stages(TraceTimeline& trace);

}  // namespace pipewright::traces
