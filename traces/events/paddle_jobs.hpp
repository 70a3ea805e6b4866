// pipeline_profile.json of PaddlePaddle (paddle.distributed.auto_parallel.static.
// profiler_helper_static): slices "forward_0", "backward_b_5", … on the threads "GPU0", "GPU1", …,
// each named after its job's type and its number in the GPU's list of jobs, which begins again with
// each step.
#pragma once

#include "traces/events/raw_trace.hpp"

namespace pipewright::traces {

/// A computation of a pipeline or an optimizer's step, as that tool writes them.
bool is_paddle_job(const RawEvent& event);

/// Makes of such slices those of a rank each ("PP:0F3" in the process "rank 2", its step marked as
/// PyTorch's profiler does). A GPU is a rank and holds one stage; where types have a chunk
/// ("forward1"), stages go around the ranks, or back from the last one if chunk 1 begins there
/// (VPP, ZB-V). The file does not say which micro-batch a job is of; every pass of
/// Paddle takes them in turn: forwards, backwards, and the gradients of weights that backwards
/// leave. Leaves other traces as they are.
void name_paddle_jobs(RawTrace& trace);

}  // namespace pipewright::traces
