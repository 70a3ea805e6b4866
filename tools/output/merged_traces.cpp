#include "tools/output/merged_traces.hpp"

#include <algorithm>
#include <iterator>

#include "core/base/error.hpp"
#include "traces/chrome/perfetto_archive.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/unpacked_stream.hpp"

namespace pipewright::tools {
namespace {

bool is_json(const std::string& file) {
  return file.ends_with(".json") || file.ends_with(".json.gz");
}

std::string text_of(const std::string& file) {
  traces::UnpackedStream stream(file, traces::kMostTraceBytes);
  return {std::istreambuf_iterator<char>(&stream), {}};
}

const traces::ClockShift* shift_of(const traces::ClockFit& clocks, int rank) {
  const auto found = std::ranges::find(clocks.shifts, rank, &traces::ClockShift::rank);
  return found == clocks.shifts.end() ? nullptr : &*found;
}

/// What is added to the file's times for those of the first rank's clock, in the middle of all
/// messages.
std::int64_t correction_of(const RankTrace& trace, const traces::ClockFit& clocks) {
  const traces::ClockShift* shift = shift_of(clocks, trace.rank);
  return trace.base_ns + (shift == nullptr ? 0 : shift->shift_ns);
}

}  // namespace

Flag merged_flag() {
  return {.group = "Output",
          .name = "--merged",
          .argument = "FILE",
          .help =
              "write the ranks' traces as they are, and how their clocks relate, as one "
              "archive (.tar) that Perfetto opens",
          .is_file = true,
          .writes = Writes::File};
}

std::vector<RankTrace> rank_traces(const TraceFiles& files) {
  std::vector<RankTrace> found;
  for (const auto& steps : files) {
    const traces::TraceTimeline& first = steps.front();
    if (!is_json(first.source))
      throw InputError(first.source, "", "--merged takes traces in JSON, a file of each rank");
    if (traces::is_own(first) || first.ranks.size() != 1) {
      throw InputError(first.source, "",
                       "has several ranks in it; --merged takes a file of each, and Perfetto opens "
                       "this one as it is");
    }
    found.push_back({first.source, first.ranks.front().rank, first.base_ns, first.clock_ns});
  }
  if (found.size() == 1)
    throw InputError(found[0].file, "", "is alone; --merged takes the traces of all ranks");
  return found;
}

/// The first rank to begin gives the time: what would lie before its 0 Perfetto leaves out.
void save_merged(const std::string& path, const std::vector<RankTrace>& traces,
                 const traces::ClockFit& clocks, Session& session) {
  std::vector<RankTrace> sorted = traces;
  std::ranges::stable_sort(sorted, {}, [&](const RankTrace& one) {
    return one.begin_ns - one.base_ns + correction_of(one, clocks);
  });
  std::vector<traces::ArchivedTrace> archived;
  for (const RankTrace& one : sorted) {
    const std::string label = "rank " + std::to_string(one.rank);
    archived.push_back({"rank" + std::to_string(one.rank) + ".json", label, text_of(one.file),
                        correction_of(one, clocks) - correction_of(sorted.front(), clocks)});
    const traces::ClockShift* shift = shift_of(clocks, one.rank);
    if (shift != nullptr && shift->drift != 0)
      session.note("note: the clock of " + label + " drifts; " + path +
                   " is right in the middle of the steps");
  }
  session.save(path, traces::perfetto_archive(archived));
  session.wrote(path, "; Perfetto opens it on one timeline");
}

}  // namespace pipewright::tools
