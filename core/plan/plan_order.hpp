// The order that a plan.json brings: a list of actions for each rank (docs/plan-format.md).
#pragma once

#include "core/base/json_fields.hpp"
#include "core/order/order.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

/// Reads the member `order` of a plan's schedule. The plan's stages, ranks and micro-batches are
/// there already. Throws InputError at the first action, rank or stage that does not fit them.
Order read_plan_order(const JsonCursor& list, const Plan& plan);

}  // namespace pipewright
