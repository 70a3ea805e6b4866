#include "planner/closed_form.hpp"

#include <algorithm>

#include "planner/schedules/block_peaks.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

/// Micro-batches a group, as the schedule itself chooses it.
int group_of(const ScheduleRequest& request) {
  const auto found = request.parameters.find("group");
  if (found != request.parameters.end()) return positive_integer(found->second).value_or(0);
  return request.micro_batches / std::max(1, request.micro_batches / request.ranks);
}

std::int64_t zb_h1_bubble(const ScheduleRequest& request, const StageCosts& each) {
  const std::int64_t p = request.ranks, q = std::min(request.micro_batches, request.ranks);
  const std::int64_t more = std::max(each.f.value, each.i.value);
  const std::int64_t less = std::min(each.f.value, each.i.value);
  return (p - 1) * more + (q - 1) * std::max<std::int64_t>(0, less - each.w.value) + (p - q) * less;
}

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
  auto peaks = closed_form_peaks(schedule, request);
  if (!peaks) return std::nullopt;
  const auto idle = bubble(entry.name, request, each, latency.value);
  if (!idle) return std::nullopt;
  const std::int64_t backward = entry.splits_backward ? each.i.value + each.w.value : each.b.value;
  ClosedForm form;
  form.bubble_ns = *idle;
  form.makespan_ns =
      *idle + std::int64_t{request.micro_batches} * request.chunks * (each.f.value + backward);
  form.peak_activations = std::move(*peaks);
  return form;
}

}  // namespace pipewright::planner
