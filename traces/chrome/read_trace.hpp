// Reads a trace file back: our own, or a Chrome trace of another tool whose slices are named after
// the actions of a pipeline ("PP:0F3" and "0F3" as PyTorch writes them, "F m3 s0" as we do).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// The most that is read, unpacked; viewers hold no more either.
inline constexpr std::uint64_t kMostTraceBytes = std::uint64_t{2} << 30;

/// Plain or gzip, by its first bytes; "-" is standard input. Throws InputError if the file cannot
/// be read, is larger than kMostTraceBytes, is no trace, holds no action of a pipeline, or two
/// computations of a rank overlap.
TraceTimeline read_trace(const std::string& path);

/// The same from memory; `file` is for messages and becomes TraceTimeline::source.
///
/// Our own trace: times and ranks as written. Another tool's: time 0 is the start of the first
/// action; a process is a rank, in the order of its sort index; where the file says which rank
/// wrote it (PyTorch's distributedInfo), all is of that rank; slices of a GPU are taken instead of
/// the CPU's where both exist.
TraceTimeline parse_trace(std::string_view bytes, const std::string& file);

/// True if the trace was written by Pipewright.
bool is_own(const TraceTimeline& trace);

/// The action that a slice is named after, or nullopt.
std::optional<Cell> cell_of_slice_name(std::string_view name);

}  // namespace pipewright::traces
