#include "exec/runtime/shown_step.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pipewright::exec {
namespace {

std::size_t bytes_of(const Timeline& timeline) {
  return (timeline.start.size() + timeline.end.size() + timeline.moving.size()) *
         sizeof(std::int64_t);
}

std::size_t most_competing(const Timeline& timeline) {
  const std::size_t fit = ShownStep::kMostBytes / std::max<std::size_t>(1, bytes_of(timeline));
  return std::clamp(fit, ShownStep::kFewest, ShownStep::kMost);
}

}  // namespace

Timeline ShownStep::add(Timeline timeline) {
  const int step = added_++;
  const bool replaces = !median_ || step <= warm_up_;
  if (!replaces && (step - warm_up_) % stride_ != 0) return timeline;
  if (replaces) {
    for (Step& one : competing_) spare_.push_back(std::move(one.timeline));
    competing_.clear();
  }
  const std::size_t most = most_competing(timeline);
  competing_.push_back({step, std::move(timeline)});
  if (competing_.size() > most) thin_out();
  if (spare_.empty()) return {};
  Timeline spare = std::move(spare_.back());
  spare_.pop_back();
  return spare;
}

/// Keeps every other one, the first among them.
void ShownStep::thin_out() {
  stride_ *= 2;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < competing_.size(); ++i) {
    if (i % 2 == 0) {
      std::swap(competing_[kept++], competing_[i]);
    }
  }
  for (std::size_t i = kept; i < competing_.size(); ++i)
    spare_.push_back(std::move(competing_[i].timeline));
  competing_.resize(kept);
}

ShownStep::Step ShownStep::take() {
  if (competing_.empty()) return {};
  const auto middle = competing_.begin() + static_cast<std::ptrdiff_t>((competing_.size() - 1) / 2);
  std::nth_element(competing_.begin(), middle, competing_.end(), [](const Step& a, const Step& b) {
    return std::pair(a.timeline.makespan_ns, a.step) < std::pair(b.timeline.makespan_ns, b.step);
  });
  return std::move(*middle);
}

}  // namespace pipewright::exec
