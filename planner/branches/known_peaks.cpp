#include "planner/branches/known_peaks.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kMostKnown = 512;

}  // namespace

std::shared_ptr<const OrderPeaks> KnownPeaks::of(const Schedule& schedule,
                                                 const ScheduleRequest& request,
                                                 OrderPeaks::Sizes sizes,
                                                 std::optional<Order>& order) {
  const Key key{schedule.name,  request.ranks,      request.micro_batches,
                request.chunks, request.parameters, sizes};
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
  }
  // Two threads that come here at once find the same.
  order = schedule.make(request);
  auto peaks = std::make_shared<const OrderPeaks>(*order, sizes);
  const std::lock_guard lock(mutex_);
  if (known_.size() == kMostKnown) known_.clear();
  known_.try_emplace(key, peaks);
  return peaks;
}

}  // namespace pipewright::planner
