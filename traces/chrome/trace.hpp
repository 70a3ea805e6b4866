// Writes a timeline in Chrome's trace format, as ui.perfetto.dev and chrome://tracing read it
// (docs/trace-format.md). Pure functions but for save_chrome_trace; any number of threads may call
// them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/timeline/gpu_work.hpp"
#include "core/timeline/timeline.hpp"
#include "traces/chrome/host_track.hpp"

namespace pipewright::traces {

struct TraceInfo {
  enum class Kind : std::uint8_t { Simulated, Measured };

  std::string title;
  Kind kind = Kind::Simulated;
  /// Further entries of the file's metadata ("schedule", "plan", "cluster", …), written in this
  /// order. A key that the writer sets itself (docs/trace-format.md) is left out.
  std::vector<std::pair<std::string, std::string>> metadata;
  /// Of a measured step: what the command did, for a process "host". Empty: there is none.
  std::vector<HostPhase> phases;
  /// Of a measured step: what the GPUs did, by rank, then start. May be empty.
  std::vector<GpuWork> work;
};

/// The file as text: same input, same bytes. `costs` gives message sizes and memory; its durations
/// are not used, for the timeline has them. A step that got stuck is written too.
std::string chrome_trace(const Program& program, const Timeline& timeline, const CostTable& costs,
                         const TraceInfo& info);

/// The same into a file, whole or not at all; compressed if the name ends in ".gz". Throws
/// MachineError if it cannot be written.
void write_chrome_trace(const std::filesystem::path& path, const Program& program,
                        const Timeline& timeline, const CostTable& costs, const TraceInfo& info);

}  // namespace pipewright::traces
