// A schedule as a user names it, and the titles of orders.
#pragma once

#include <string>

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// The schedule that a name means outside a job: a schedule's own name, with its hyphens or
/// without, takes precedence over another's alias. So `zbh1` means zb-h1 here, while a job's
/// `schedule_mode: "ZBH1"` is Paddle's. Throws InputError with a suggestion.
const Schedule& schedule_meant(const std::string& name);

/// "1f1b: p=4 m=8 v=2 group=4".
std::string title_of(const Schedule& schedule, const ScheduleRequest& request);
/// Of one that was read: "order.csv: p=4 m=8 stages=4".
std::string title_of(const Order& order, const std::string& source);

}  // namespace pipewright::planner
