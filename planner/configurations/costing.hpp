// Which of the two ways of costing a job gets, and why. A reader of its plan has to know this
// first, because a plan made layer by layer knows fewer kinds of parallelism. Pure functions.
#pragma once

#include <string>

#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"

namespace pipewright::planner {

struct Costing {
  std::string way;        // "estimate", "profile" or "operations": where times come from
  std::string why;        // what of the job decides it, in a sentence
  std::string otherwise;  // what would change it, in a sentence
};

/// Decides how the job is costed; `profile` may be null. Undoes 16-bit numbers that were only
/// assumed where the estimate cannot use them: with a profile, or for a device whose rates it does
/// not know. Turns lengths of samples into how long they take. Throws InputError where the profile
/// cannot tell.
Costing settle_costing(Job& job, const Profile* profile);

}  // namespace pipewright::planner
