#include "sim/dumps/batches.hpp"

#include <cstddef>
#include <map>

namespace pipewright::sim {
namespace {

bool have_one_number(const RecordedCall& a, const RecordedCall& b) {
  return a.counts_as_transfer == b.counts_as_transfer && a.number == b.number;
}

}  // namespace

void join_batches(std::vector<RecordedCall>& calls) {
  std::map<std::size_t, std::vector<std::size_t>> runs;  // by group, the last calls of one number
  std::vector<bool> closes(calls.size(), false);
  for (std::size_t at = 0; at < calls.size(); ++at) {
    const RecordedCall& call = calls[at];
    std::vector<std::size_t>& run = runs[call.group];
    if (!run.empty() && !have_one_number(calls[run.back()], call)) run.clear();
    // A call of many tensors may be named so too, and stands alone then.
    const bool ends =
        call.operation == "coalesced" || (call.operation.ends_with("_coalesced") && !run.empty());
    if (!ends) {
      run.push_back(at);
      if (run.size() > 1) calls[at].batch = calls[run.front()].batch = calls[run.front()].record;
      continue;
    }
    for (const std::size_t member : run) {
      calls[member].batch = calls[run.front()].record;
      calls[member].state = call.state;
    }
    closes[at] = true;
    run.clear();
  }
  std::size_t kept = 0;
  for (std::size_t at = 0; at < calls.size(); ++at) {
    if (closes[at]) continue;
    if (kept != at) calls[kept] = std::move(calls[at]);
    ++kept;
  }
  calls.resize(kept);
}

}  // namespace pipewright::sim
