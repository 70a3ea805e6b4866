// The communication policy that a job runs a schedule with.
#pragma once

#include "core/order/comm_policy.hpp"
#include "core/plan/job.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// The job's own, else the schedule's, else a plan's default.
CommPolicy policy_for(const Job& job, const Schedule& schedule);

}  // namespace pipewright::planner
