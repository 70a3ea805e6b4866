// All that the page shows of a timeline, as columns: actions, messages, bubbles with their causes,
// the critical path, memory. The page computes none of it again. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/critical_path.hpp"
#include "traces/analysis/root_causes.hpp"

namespace pipewright::traces {

struct PageData {
  Json facts;  // what is small: numbers of the step, names of kinds, the columns' directory
  std::string columns;  // Columns::packed()
};

/// What a page may know besides the step itself.
struct PageExtras {
  const WaitReport* stuck = nullptr;      // of a step that got stuck why
  const BubbleReport* bubbles = nullptr;  // else explain_bubbles()
  const RootReport* roots = nullptr;      // of these bubbles; without it the page tells none
  std::vector<int> ranks;                 // numbers of the rows; empty: 0, 1, …
  Times times = Times::Simulated;
  /// Of a page with two timelines, matched_rows() of this one with the other.
  std::vector<std::int64_t> other_rows;
};

/// The facts:
///   "ranks" (how many), "rank_numbers", "makespan_ns", "end_ns" (later than that where something
///   is stuck), "kinds", "causes", "root_causes" and "path_kinds" (names by number), "has_bytes"
///   (of memory), "peaks" (by rank), "stuck" (what stands), "cycle" (who waits for whom), "columns"
///   (Columns::directory()).
/// Actions, messages and members are numbered by their row; a reference is 0 for none, else row
/// + 1.
PageData page_data(const Program& program, const Timeline& timeline, const CostTable& costs,
                   const PageExtras& extras = {});

}  // namespace pipewright::traces
