// The parts of an action in nanoseconds, where one number is known of the whole. Pure functions.
#pragma once

#include <functional>

#include "core/base/units.hpp"
#include "core/order/parts.hpp"

namespace pipewright {

/// Each call weighs what `price` says, and the computations share, in proportion to their weights,
/// at least 1 ns each, as much as makes the list take `whole`: what calls leave, and what is
/// computed beside them. Returns the sum of that, which is then the action's cost. The action has a
/// computation that is beside no call.
Nanoseconds weigh(ActionParts& action, Nanoseconds whole,
                  const std::function<Nanoseconds(const Call&)>& price);

}  // namespace pipewright
