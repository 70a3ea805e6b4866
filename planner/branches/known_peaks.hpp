// The moments at which orders hold the most, kept for the next configuration that has the same
// order: hundreds of a search differ in nothing that an order follows from.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "planner/memory/order_peaks.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// Any number of threads may ask.
class KnownPeaks {
 public:
  /// Of what a schedule that is not cost-driven makes of a request. `order` is set where it had to
  /// be made.
  std::shared_ptr<const OrderPeaks> of(const Schedule& schedule, const ScheduleRequest& request,
                                       OrderPeaks::Sizes sizes, std::optional<Order>& order);

 private:
  using Key = std::tuple<std::string_view, int, int, int, std::map<std::string, std::string>,
                         OrderPeaks::Sizes>;

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const OrderPeaks>> known_;
};

}  // namespace pipewright::planner
