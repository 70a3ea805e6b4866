// Reads a trace file back: our own, or one of another tool whose slices are named after the actions
// of a pipeline ("PP:0F3" and "0F3" as PyTorch writes them, "F m3 s0" as we do, "forward_0" in
// Paddle's pipeline_profile.json): a Chrome trace, what Nsight Systems exports as SQLite, or the
// execution traces of Chakra.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"
#include "traces/events/chakra.hpp"

namespace pipewright::traces {

/// The most that is read, unpacked; viewers hold no more either.
inline constexpr std::uint64_t kMostTraceBytes = std::uint64_t{2} << 30;

/// Plain or gzip, by its first bytes; "-" is standard input. Throws InputError if the file cannot
/// be read, is larger than kMostTraceBytes, is no trace, holds no action of a pipeline, two
/// computations of a rank overlap, or it holds several steps.
TraceTimeline read_trace(const std::string& path);

/// The same of a trace that may hold several steps, in the order of their numbers.
std::vector<TraceTimeline> read_trace_steps(const std::string& path);

/// The same from memory; `file` is for messages and becomes TraceTimeline::source.
///
/// Our own trace: times and ranks as written. Another tool's: time 0 is the start of the first
/// action; a process is a rank, in the order of its sort index, or by the file's name if it is the
/// only one; where the file says which rank wrote it (PyTorch's distributedInfo), all is of that
/// rank. Where the actions ran on a GPU, the times are those of the kernels that they launched
/// (device_spans.hpp), or of the slices that the profiler drew there.
TraceTimeline parse_trace(std::string_view bytes, const std::string& file);
std::vector<TraceTimeline> parse_trace_steps(std::string_view bytes, const std::string& file);

/// Files of Chakra, one of each rank, each unpacked as above: the steps of each. They are read
/// together, because the other end of a message is in another's. Throws as read_trace_steps().
std::vector<std::vector<TraceTimeline>> read_chakra_steps(const std::vector<std::string>& paths);
std::vector<std::vector<TraceTimeline>> chakra_steps(const std::vector<ChakraTrace>& ranks);

/// True if the trace was written by Pipewright.
bool is_own(const TraceTimeline& trace);

/// The action that a slice is named after, or nullopt.
std::optional<Cell> cell_of_slice_name(std::string_view name);

}  // namespace pipewright::traces
