// How often a schedule keeps the model's weights: replicas and weight versions cost memory that no
// activation count shows. Pure functions.
#pragma once

#include <vector>

#include "core/order/order.hpp"

namespace pipewright::planner {

/// By rank: the most weight versions of a stage that it has to keep at once, the current one
/// included (core/program/version_changes.hpp). 1 where the order names none.
std::vector<int> live_versions(const Order& order);

/// Copies of the whole model's weights on all ranks together: 1 for one replica and one version, 2
/// for a bidirectional pipeline. All stages count the same.
double weight_copies(const Order& order);

}  // namespace pipewright::planner
