// How many ranks each stage of a pipeline has, where a schedule lets micro-batches go round the
// replicas of a stage (Layout::Replicas: PipeDream's 1f1b-rr): which ways there are to share ranks
// out, and how they are written. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/job.hpp"
#include "planner/estimate/setup.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// "2,1,1": the parameter `replicas` of such a schedule.
std::string replicas_text(const std::vector<int>& stage_replicas);
/// nullopt for a text that is not a list of counts.
std::optional<std::vector<int>> read_replicas(std::string_view text);
/// The default of such a schedule: two ranks for the first stage.
std::vector<int> default_replicas(int ranks);

/// The parameters of the schedule that a setup is for: its replicas, where it has any.
std::map<std::string, std::string> schedule_parameters(const ParallelSetup& parallel);
/// The sizes that a setup asks of its schedule, without costs.
ScheduleRequest request_of(const ParallelSetup& parallel);

/// The first rank of each stage: they are numbered stage after stage.
std::vector<int> first_ranks(const std::vector<int>& stage_replicas);
/// Each stage on its first rank, where its first micro-batch goes.
Placement first_placement(const std::vector<int>& stage_replicas);

/// Ways to share out ranks, each number of them a divisor of the micro-batches.
struct Replications {
  std::vector<std::vector<int>> all;  // where there are few enough to try each
  std::vector<int> stage_counts;      // else: how many stages there can be
};
/// All ways of up to 8 ranks are few enough.
Replications replications_of(int ranks, int micro_batches, int most_stages);

/// The ranks of the pipelines that the strategy names: pp_degree, or what its stage_replicas add up
/// to. Empty where both are open. Throws InputError as asked_numbers() does.
std::vector<int> asked_ranks(const Strategy& strategy);

}  // namespace pipewright::planner
