// The parts of an action in nanoseconds, where one number is known of the whole. Pure functions.
#pragma once

#include <functional>

#include "core/base/units.hpp"
#include "core/order/parts.hpp"

namespace pipewright {

/// Each call weighs what `price` says, and the computations share the rest of `whole` in proportion
/// to their weights, at least 1 ns each. Returns the rest: with it as the action's cost the list
/// takes `whole`. The action has a computation.
Nanoseconds weigh(ActionParts& action, Nanoseconds whole,
                  const std::function<Nanoseconds(const Call&)>& price);

}  // namespace pipewright
