#include "planner/closed_form.hpp"

#include <algorithm>

#include "planner/closed_form_rules.hpp"
#include "planner/schedules/block_peaks.hpp"
#include "planner/schedules/building.hpp"

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
                     !refusal_of(schedule, request);
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
  return schedule.splits_backward && !fused ? each.i.value + each.w.value : each.b.value;
std::optional<std::int64_t> bubble(std::string_view name, const ScheduleRequest& request,
                                   const StageCosts& each, std::int64_t latency) {
  const std::int64_t p = request.ranks, m = request.micro_batches;
  const std::int64_t f_and_b = each.f.value + each.b.value;
  if (name == "naive") return m * (p - 1) * (f_and_b + 2 * latency);
  if (name == "gpipe") return (p - 1) * (f_and_b + 2 * latency);
  if (latency != 0 && p > 1) return std::nullopt;
  if (name == "1f1b") return (p - 1) * f_and_b;
  if (name == "zb-h1") return zb_h1_bubble(request, each);
  if (name == "interleaved" && m >= p && group_of(request) == request.ranks) {
    return (p - 1) * f_and_b;
  }
  return std::nullopt;
}

int peak(std::string_view name, const ScheduleRequest& request, int rank) {
  const int p = request.ranks, m = request.micro_batches, v = request.chunks;
  if (name == "naive") return 1;
  if (name == "gpipe") return m;
  if (name == "1f1b") return std::min(p - rank, m);
  if (name == "zb-h1") return std::min(p, m);
  const std::int64_t ahead = std::int64_t{v - 1} * group_of(request) + 2 * (p - 1 - rank) + 1;
  return static_cast<int>(std::min(std::int64_t{m} * v, ahead));
}

/// Peaks and bubbles below are those of the schedule without Paddle's transfer ends.
bool has_formula(const Schedule& schedule, const ScheduleRequest& request) {
  constexpr std::string_view kKnown[] = {"naive", "gpipe", "1f1b", "zb-h1", "interleaved"};
  return std::find(std::begin(kKnown), std::end(kKnown), schedule.name) != std::end(kKnown) &&
         request.parameters.count("jobs") == 0;
}

}  // namespace

std::optional<std::vector<int>> closed_form_peaks(std::string_view schedule,
                                                  const ScheduleRequest& request) {
  const ClosedFormRule* rule = rule_for(find_schedule(schedule), request);
  if (rule == nullptr) return std::nullopt;
  return peaks_by(*rule, request);
  const Schedule& entry = find_schedule(schedule);
  if (refusal_of(entry, request)) return std::nullopt;
  if (auto peaks = block_peaks(entry.name, request)) return peaks;
  if (!has_formula(entry, request)) return std::nullopt;
  std::vector<int> peaks;
  for (int r = 0; r < request.ranks; ++r) peaks.push_back(peak(entry.name, request, r));
  return peaks;
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
