// --costs: times of single actions, read for what simulate, check and run are given.
#pragma once

#include "core/costs/action_times.hpp"
#include "core/order/order.hpp"
#include "planner/schedules/registry.hpp"
#include "tools/cli/arguments.hpp"

namespace pipewright::tools {

/// Puts --costs, where it is given, into the table. `pipeline` is the order of one replica. Throws
/// InputError with file and line for a row that says nothing about it.
void use_action_times(CostTable& costs, const Order& pipeline, const ReplicaShape& shape,
                      const Arguments& arguments);

/// The same for the schedule auto, before its order is there: rows may name computations of a
/// backward as one or as two, as long as each belongs to the request's stages.
void add_action_times(planner::ScheduleRequest& request, const planner::Schedule& schedule,
                      const Arguments& arguments);
/// What of the request's times is about the order that was found; others are of the other kind of
/// backward.
void keep_action_times(CostTable& costs, const planner::ScheduleRequest& request,
                       const Order& found);

}  // namespace pipewright::tools
