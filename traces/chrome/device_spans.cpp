#include "traces/chrome/device_spans.hpp"

#include <algorithm>
#include <optional>

namespace pipewright::traces {
namespace {

/// Which slice a moment lies in; of nested ones the last that began.
class Innermost {
 public:
  explicit Innermost(const std::vector<TraceSpan>& slices) : slices_(slices) {
    std::int64_t latest = 0;
    for (const TraceSpan& slice : slices) {
      latest = latest_end_.empty() ? slice.end_ns : std::max(latest, slice.end_ns);
      latest_end_.push_back(latest);
    }
  }

  std::optional<std::size_t> at(std::int64_t moment) const {
    const auto after = std::upper_bound(
        slices_.begin(), slices_.end(), moment,
        [](std::int64_t time, const TraceSpan& slice) { return time < slice.start_ns; });
    for (auto i = static_cast<std::size_t>(after - slices_.begin()); i-- > 0;) {
      if (latest_end_[i] <= moment) return std::nullopt;
      if (slices_[i].end_ns > moment) return i;
    }
    return std::nullopt;
  }

 private:
  const std::vector<TraceSpan>& slices_;
  std::vector<std::int64_t> latest_end_;  // of this slice and all before it
};

/// From the first start to the last end of what it has taken.
struct Extent {
  std::optional<TimeRange> range;

  void take(const TimeRange& one) {
    if (!range) range = one;
    range->start_ns = std::min(range->start_ns, one.start_ns);
    range->end_ns = std::max(range->end_ns, one.end_ns);
  }
};

}  // namespace

bool launches_kernels(const std::vector<TraceSpan>& slices, const std::vector<Kernel>& kernels) {
  const Innermost innermost(slices);
  return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
    const auto slice = innermost.at(kernel.launched_ns);
    return slice && is_compute(slices[*slice].cell.action.kind);
  });
}

std::size_t move_to_device(std::vector<TraceSpan>& slices, const std::vector<Kernel>& kernels,
                           std::vector<TimeRange>& receives, bool run_ahead) {
  std::vector<Extent> all(slices.size()), of_nccl(slices.size());
  const Innermost innermost(slices);
  std::size_t outside = 0;
  for (const Kernel& kernel : kernels) {
    const auto slice = innermost.at(kernel.launched_ns);
    if (!slice) {
      outside += kernel.communicates;
      continue;
    }
    all[*slice].take(kernel.ran);
    if (!kernel.communicates) continue;
    of_nccl[*slice].take(kernel.ran);
    if (is_recv(slices[*slice].cell.action.kind)) receives.push_back(kernel.ran);
  }
  std::optional<std::int64_t> latest;  // end of the computations so far
  for (std::size_t i = 0; i < slices.size(); ++i) {
    TraceSpan& slice = slices[i];
    const bool computes = is_compute(slice.cell.action.kind);
    const auto& range = !computes && of_nccl[i].range ? of_nccl[i].range : all[i].range;
    if (!range && is_transfer(slice.cell.action.kind) && !run_ahead) continue;
    const std::int64_t idle = latest.value_or(slice.start_ns);
    slice.start_ns = slice.moving_ns = range ? range->start_ns : idle;
    slice.end_ns = range ? range->end_ns : idle;
    if (computes) latest = std::max(latest.value_or(slice.end_ns), slice.end_ns);
  }
  return outside;
}

}  // namespace pipewright::traces
