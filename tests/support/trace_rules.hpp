// What a Chrome trace has to obey so that Perfetto and chrome://tracing show all of it: our own
// reading of the rules in docs/trace-format.md, apart from the writer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pipewright::test {

struct TraceFacts {
  std::vector<std::string> problems;  // empty: fine
  int slices = 0, arrows = 0, counters = 0, processes = 0, threads = 0;
};

TraceFacts trace_facts(std::string_view text);

}  // namespace pipewright::test
