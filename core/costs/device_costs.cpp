#include "core/costs/device_costs.hpp"

#include <memory>
#include <utility>

#include "core/costs/action_times.hpp"
#include "core/costs/collective_model.hpp"

namespace pipewright {

CostTable costs_of_devices(CostTable costs, int devices_of_rank) {
  costs.ranks_of_entry *= devices_of_rank;
  if (costs.actions != nullptr) {
    costs.actions = std::make_shared<ActionTimes>(costs.actions->on_devices(devices_of_rank));
  }
  if (costs.collectives == nullptr) return costs;
  auto prices = std::make_shared<CollectivePrices>(*costs.collectives);
  prices->device_of_rank.clear();
  for (const int first : costs.collectives->device_of_rank) {
    for (int j = 0; j < devices_of_rank; ++j) prices->device_of_rank.push_back(first + j);
  }
  costs.collectives = std::move(prices);
  return costs;
}

}  // namespace pipewright
