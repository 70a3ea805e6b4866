// The formulas of planner/bounds/closed_form.hpp, one entry for each schedule. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/costs/costs.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// The terms of a formula: p, m, v and the costs of one stage in nanoseconds; b is what the
/// schedule's backward costs, fused or in parts.
struct FormulaTerms {
  const ScheduleRequest& request;
  std::int64_t p = 1, m = 1, v = 1;
  std::int64_t f = 0, i = 0, w = 0, b = 0, latency = 0;
};

struct ClosedFormRule {
  std::string_view schedule;
  /// The most live chunk activations of a rank, for any costs.
  int (*peak)(const ScheduleRequest& request, int rank);
  /// Makespan minus the work of one rank; nullopt where the formula does not hold. nullptr: none is
  /// known. Latency is 0 on more than one rank unless `with_latency`.
  std::optional<std::int64_t> (*bubble)(const FormulaTerms& terms);
  bool with_latency = false;
  /// The longest span minus the work, asked only where `bubble` has an answer; nullptr: no form.
  std::int64_t (*span_bubble)(const FormulaTerms& terms) = nullptr;
  /// Whether `peak` holds for the request; nullptr: always.
  bool (*has_peak)(const ScheduleRequest& request) = nullptr;
};

std::span<const ClosedFormRule> closed_form_rules();

}  // namespace pipewright::planner
