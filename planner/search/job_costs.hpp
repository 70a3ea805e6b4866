// Where the numbers of a search come from.
#pragma once

#include <memory>

#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/configurations/costs.hpp"

namespace pipewright::planner {

/// The estimate where the job is estimated (estimated_architecture()) and there is no profile, else
/// the layers'. `cores`: as in SearchOptions. References `job`, which has to live as long. Throws
/// InputError for a profile of another model or device, for a device without known rates, and for a
/// measured step that is no configuration of this job, with its place. Measured steps of a job that
/// is planned layer by layer change nothing here (fit_measured_steps()).
std::unique_ptr<ConfigurationCosts> costs_of_job(const Job& job, const Profile* profile, int cores);

}  // namespace pipewright::planner
