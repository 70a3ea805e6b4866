// The costs of orders whose ranks are written out as devices (core/order/devices.hpp). Pure
// function.
#pragma once

#include "core/costs/costs.hpp"

namespace pipewright {

/// Of a table for ranks that stand for so many devices each, the one for these devices: the ways
/// between two are those of their ranks, and devices of a rank sit side by side.
CostTable costs_of_devices(CostTable costs, int devices_of_rank);

}  // namespace pipewright
