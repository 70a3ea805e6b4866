// Traces of ranks as one archive that Perfetto opens on one timeline: the files as they are, and
// how their clocks relate (https://perfetto.dev/docs/reference/perfetto-manifest, version 1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright::traces {

struct ArchivedTrace {
  std::string name;   // in the archive, at most 100 bytes
  std::string label;  // what it is of: its processes are kept apart from those of other labels
  std::string bytes;  // Chrome's JSON
  std::int64_t offset_ns = 0;  // to be added to its times for those of the first trace
};

/// A TAR archive (POSIX.1-1988, "ustar") with perfetto_manifest.json; the same for the same traces.
std::string perfetto_archive(const std::vector<ArchivedTrace>& traces);

}  // namespace pipewright::traces
