// Whether `run` can execute a plan, and what is missing where it cannot. Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// What no device has: "tensor parallelism", "layers of the block". Empty: nothing.
std::vector<std::string> missing_everywhere(const Job& job, const ParallelSetup& parallel);

/// By device kind (Plan::executable).
std::map<std::string, Executable> executable_on_devices(const Job& job,
                                                        const ParallelSetup& parallel);

/// Whether CPUs run it as it is; false where the plan does not say.
bool cpus_run(const Plan& plan);

}  // namespace pipewright::planner
