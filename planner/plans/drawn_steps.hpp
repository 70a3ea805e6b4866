// How a plan's step may turn out, from the spread of a profile's measurements.
#pragma once

#include <cstdint>

#include "core/costs/distribution.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "core/program/program.hpp"

namespace pipewright::planner {

/// Makespans of so many simulations of `run`, which is what a run of the plan executes
/// (program_of_run()), or that with other transfers. Durations are drawn from the profile
/// (DrawnDurations; seeds `seed`, `seed` + 1, …). Their median is above the plan's step, in which
/// every rank takes its typical time and none waits for one that takes longer. Throws InputError
/// for a profile of another model or without spreads.
Distribution drawn_steps(const Plan& plan, const Program& run, const Profile& profile,
                         std::int64_t samples, std::uint64_t seed = 1);

}  // namespace pipewright::planner
