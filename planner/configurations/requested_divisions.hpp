// How a job that is planned layer by layer lets ranks divide the layers of its model. Pure
// functions.
#pragma once

#include <vector>

#include "core/model/tensor_split.hpp"
#include "core/plan/job.hpp"

namespace pipewright::planner {

/// tp, and ep, to try: the divisors of the devices where the job writes "auto" (of ep those that
/// can divide the model's experts); {1} where it does not ask.
std::vector<int> asked_tensor(const Job& job);
/// The same of cp; of "auto" those that the model's sequences can be divided by.
std::vector<int> asked_context(const Job& job);
/// Whether keys and values go round them: both where the job writes "auto"; {false} where it does
/// not ask.
std::vector<bool> asked_ring(const Job& job);
std::vector<int> asked_experts(const Job& job);
/// Ranks that divide each expert to try: 0 stands for as many as tp; both, and 1, where the job
/// writes "auto"; {0} where it does not ask.
std::vector<int> asked_expert_tensor(const Job& job);
/// Whether the ranks of tp divide rows, too: both where the job writes "auto"; {false} where it
/// does not ask.
std::vector<bool> asked_rows(const Job& job);

/// All but the whole, without rows that are divided: those of the asked ones that the model's
/// layers can be divided by.
std::vector<StageDivision> divisions_of(const Job& job);

/// How many pipelines beside one another a profile for the job has to know: 1, and the fewest
/// replicas that it tries besides, ascending; one of the two where it tries no other.
std::vector<int> replicas_to_measure(const Job& job);

}  // namespace pipewright::planner
