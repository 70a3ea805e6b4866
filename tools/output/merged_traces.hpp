// The traces of a job's ranks as one archive for Perfetto, their clocks set right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/trace_files.hpp"
#include "traces/analysis/clocks.hpp"

namespace pipewright::tools {

/// --merged, and what it says.
Flag merged_flag();

struct RankTrace {
  std::string file;
  int rank = 0;
  std::int64_t base_ns = 0;   // of its machine's clock where its times are 0
  std::int64_t begin_ns = 0;  // of its first action, on that clock
};
/// Throws InputError unless each file is of another tool, of one rank, and JSON; and for one file.
std::vector<RankTrace> rank_traces(const TraceFiles& files);

/// Writes FILE.
void save_merged(const std::string& path, const std::vector<RankTrace>& traces,
                 const traces::ClockFit& clocks, Session& session);

}  // namespace pipewright::tools
