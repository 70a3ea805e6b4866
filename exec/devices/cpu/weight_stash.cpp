#include "exec/devices/cpu/weight_stash.hpp"

#include <string>
#include <utility>

#include "core/base/error.hpp"

namespace pipewright::exec::cpu {

void WeightStash::keep(int version) {
  Values copy(parameters_.size());
  if (!spare_.empty()) {
    copy = std::move(spare_.back());
    spare_.pop_back();
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) copy[i] = parameters_[i]->value;
  const bool is_new = versions_.emplace(version, std::move(copy)).second;
  PIPEWRIGHT_ASSERT(is_new, "version " + std::to_string(version) + " is kept twice");
}

void WeightStash::drop(int version) {
  const auto found = versions_.find(version);
  if (found == versions_.end()) return;
  spare_.push_back(std::move(found->second));
  versions_.erase(found);
}

void WeightStash::exchange(int version) {
  const auto found = versions_.find(version);
  PIPEWRIGHT_ASSERT(found != versions_.end(),
                    "version " + std::to_string(version) + " of the weights is not kept");
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    std::swap(parameters_[i]->value, found->second[i]);
}

}  // namespace pipewright::exec::cpu
