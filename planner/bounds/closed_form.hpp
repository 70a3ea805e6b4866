// What the literature's formulas say about schedules with equal stages. They are a second opinion
// on the simulator (tests/golden/closed_form_test.cpp holds the two equal, nanosecond by
// nanosecond) and a quick first look for users. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

struct ClosedForm {
  std::int64_t makespan_ns = 0;
  std::int64_t bubble_ns = 0;         // makespan minus the work of one rank
  std::vector<int> peak_activations;  // by rank, in chunks
  /// The largest span of a rank (first start to last end) minus its work, the zero-bubble papers'
  /// bubble; only where it has a form of its own (zb-h2, zbv).
  std::optional<std::int64_t> span_bubble_ns;
};

/// Under the policy `ideal`: every stage costs `each` for a micro-batch, an overlapped pair F + B,
/// `latency` is paid on each dependency between two ranks. nullopt where no closed form holds: an
/// unknown schedule, a latency with another schedule than naive and gpipe, sizes or costs outside
/// the form's range (planner/bounds/closed_form_rules.cpp has them: interleaved unless m >= p and
/// the group is p, zb-h2 and zbv below 2p-1 micro-batches, zbv and the DualPipes unless F = I >= W,
/// chimera unless F = B, …).
std::optional<ClosedForm> closed_form(std::string_view schedule, const ScheduleRequest& request,
                                      const StageCosts& each, Nanoseconds latency = Nanoseconds(0));

/// The most live chunk activations of each rank, whatever the costs; nullopt where no formula is
/// known.
std::optional<std::vector<int>> closed_form_peaks(std::string_view schedule,
                                                  const ScheduleRequest& request);

}  // namespace pipewright::planner
