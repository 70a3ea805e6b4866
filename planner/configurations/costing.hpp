// Which of the two ways of costing a job gets, and why: what a reader of its plan has to know
// first, for a layer by layer plan knows fewer kinds of parallelism. Pure functions.
#pragma once

#include <string>

#include "core/plan/job.hpp"

namespace pipewright::planner {

struct Costing {
  std::string way;        // "estimate", "profile" or "operations": where times come from
  std::string why;        // what of the job decides it, in a sentence
  std::string otherwise;  // what would change it, in a sentence
};

/// Takes back 16 bits that were only assumed, where the estimate could not be made of them: with a
/// profile, or for a device whose rates it does not know.
Costing settle_costing(Job& job, bool has_profile);

}  // namespace pipewright::planner
