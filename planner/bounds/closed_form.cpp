#include "planner/bounds/closed_form.hpp"

#include <algorithm>

#include "planner/bounds/closed_form_rules.hpp"

namespace pipewright::planner {
namespace {

/// nullptr where none is known for the schedule, or the request is refused. Formulas are those of
/// the schedules without Paddle's transfer ends.
const ClosedFormRule* rule_for(const Schedule& schedule, const ScheduleRequest& request) {
  const auto rules = closed_form_rules();
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const ClosedFormRule& rule) {
    return rule.schedule == schedule.name;
  });
  const bool holds = found != rules.end() && request.parameters.count("jobs") == 0 &&
                     !refusal_of(schedule, request) &&
                     (found->has_peak == nullptr || found->has_peak(request));
  return holds ? &*found : nullptr;
}

std::vector<int> peaks_by(const ClosedFormRule& rule, const ScheduleRequest& request) {
  std::vector<int> peaks;
  peaks.reserve(static_cast<std::size_t>(request.ranks));
  for (int r = 0; r < request.ranks; ++r) peaks.push_back(rule.peak(request, r));
  return peaks;
}

std::int64_t backward_of(const Schedule& schedule, const ScheduleRequest& request,
                         const StageCosts& each) {
  const auto found = request.parameters.find("backward");
  const bool fused = found != request.parameters.end() && found->second == "fused";
  return schedule.traits.splits_backward && !fused ? each.i.value + each.w.value : each.b.value;
}

}  // namespace

std::optional<std::vector<int>> closed_form_peaks(std::string_view schedule,
                                                  const ScheduleRequest& request) {
  const ClosedFormRule* rule = rule_for(find_schedule(schedule), request);
  if (rule == nullptr) return std::nullopt;
  return peaks_by(*rule, request);
}

std::optional<ClosedForm> closed_form(std::string_view schedule, const ScheduleRequest& request,
                                      const StageCosts& each, Nanoseconds latency) {
  const Schedule& entry = find_schedule(schedule);
  const ClosedFormRule* rule = rule_for(entry, request);
  if (rule == nullptr || rule->bubble == nullptr) return std::nullopt;
  if (latency.value != 0 && request.ranks > 1 && !rule->with_latency) return std::nullopt;
  const FormulaTerms terms{.request = request,
                           .p = request.ranks,
                           .m = request.micro_batches,
                           .v = request.chunks,
                           .f = each.f.value,
                           .i = each.i.value,
                           .w = each.w.value,
                           .b = backward_of(entry, request, each),
                           .latency = latency.value};
  const auto idle = rule->bubble(terms);
  if (!idle) return std::nullopt;
  ClosedForm form;
  form.bubble_ns = *idle;
  form.makespan_ns = *idle + terms.m * terms.v * (terms.f + terms.b);
  form.peak_activations = peaks_by(*rule, request);
  if (rule->span_bubble != nullptr) form.span_bubble_ns = rule->span_bubble(terms);
  return form;
}

}  // namespace pipewright::planner
