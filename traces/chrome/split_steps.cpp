#include "traces/chrome/split_steps.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

namespace pipewright::traces {
namespace {

constexpr int kNoStep = StepsOfSlices::kNoStep;

bool is_step_update(const TraceSpan& slice) { return slice.cell.action.kind == ActionKind::Opt; }

/// The number of the marked step that begins last before the slice and holds its start.
int marked_step(const TraceSpan& slice, const std::vector<MarkedStep>& marks) {
  const auto after = std::upper_bound(
      marks.begin(), marks.end(), slice.start_ns,
      [](std::int64_t time, const MarkedStep& mark) { return time < mark.range.start_ns; });
  if (after == marks.begin() || std::prev(after)->range.end_ns <= slice.start_ns) return kNoStep;
  return std::prev(after)->number;
}

/// nullopt if a computation lies in no marked step.
std::optional<std::vector<int>> by_marks(const std::vector<TraceSpan>& slices,
                                         std::vector<MarkedStep> marks) {
  if (marks.empty()) return std::nullopt;
  std::sort(marks.begin(), marks.end(), [](const MarkedStep& a, const MarkedStep& b) {
    return a.range.start_ns < b.range.start_ns;
  });
  std::vector<int> step_of;
  for (const TraceSpan& slice : slices) {
    step_of.push_back(marked_step(slice, marks));
    if (step_of.back() == kNoStep && is_compute(slice.cell.action.kind)) return std::nullopt;
  }
  return step_of;
}

std::vector<int> by_repetition(const std::vector<TraceSpan>& slices) {
  std::vector<int> step_of(slices.size());
  std::set<std::string> seen;
  int step = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const TraceSpan& slice = slices[i];
    if (has_micro_batch(slice.cell.action.kind) && !seen.insert(to_string(slice.cell)).second) {
      seen = {to_string(slice.cell)};
      ++step;
      for (std::size_t before = i;
           before > 0 && slices[before - 1].cell.action.kind == ActionKind::Unshard; --before)
        step_of[before - 1] = step;
    }
    step_of[i] = step;
  }
  return step_of;
}

/// An update that comes before any action of its step belongs to the one before.
void move_early_updates(const std::vector<TraceSpan>& slices, std::vector<int>& step_of) {
  std::set<int> begun;
  int before = kNoStep;  // the step of the latest action
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (is_step_update(slices[i]) && !begun.contains(step_of[i])) step_of[i] = before;
    if (!has_micro_batch(slices[i].cell.action.kind)) continue;
    begun.insert(step_of[i]);
    before = step_of[i];
  }
}

}  // namespace

StepsOfSlices steps_of_slices(const std::vector<TraceSpan>& slices, std::vector<MarkedStep> marks) {
  StepsOfSlices result;
  if (auto marked = by_marks(slices, std::move(marks))) {
    result.step_of = *std::move(marked);
    result.are_marked = true;
  } else {
    result.step_of = by_repetition(slices);
  }
  move_early_updates(slices, result.step_of);
  return result;
}

}  // namespace pipewright::traces
