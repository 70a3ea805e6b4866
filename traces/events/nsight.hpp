// What Nsight Systems exports (`nsys export --type sqlite`): ranges of NVTX, the calls that launch
// kernels, and the kernels, of all processes.
// https://docs.nvidia.com/nsight-systems/UserGuide/index.html#exporter-sqlite-schema
#pragma once

#include <string>
#include <string_view>

#include "traces/events/raw_trace.hpp"

namespace pipewright::traces {

/// Each process is a pid, each of its threads a tid. A range of NVTX has the category
/// "user_annotation", a call "cuda_runtime", a kernel "kernel". Times count from the start of the
/// recording, whose clock is RawTrace::base_ns where the file says it. Of our own runs
/// (exec/devices/cuda/action_ranges.hpp) each rank's thread is a process of that name, its steps
/// are marked as PyTorch's profiler marks them, and copies count as kernels. Throws InputError if
/// the file is damaged, has no table of NVTX ranges, or more than kMostEvents.
RawTrace read_nsight(const std::string& path, EventFilter is_kept);
/// The same of a file that lies in memory; `file` is for messages.
RawTrace parse_nsight(std::string_view bytes, const std::string& file, EventFilter is_kept);

}  // namespace pipewright::traces
