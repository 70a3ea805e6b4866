// The communication policy that a job runs a schedule with, and what its replicas divide.
#pragma once

#include "core/order/comm_policy.hpp"
#include "core/order/sharding.hpp"
#include "core/plan/job.hpp"
#include "planner/estimate/setup.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// The job's own, else the schedule's, else a plan's default.
CommPolicy policy_for(const Job& job, const Schedule& schedule);

/// As Plan::sharding() says it of the configuration's plan.
Sharding sharding_of(const Job& job, const ParallelSetup& parallel);

}  // namespace pipewright::planner
