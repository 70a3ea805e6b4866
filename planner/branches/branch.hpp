// The branches of the search: a mesh grows into configurations with stages, a time that none of
// their orders beats and what they hold at least. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/branches/space.hpp"
#include "planner/configurations/costs.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/partition/partition.hpp"

namespace pipewright::planner {

struct Branch {
  Configuration configuration;
  std::shared_ptr<const std::vector<StagePlan>> stages;  // several branches have the same
  std::int64_t bound = 0;                                // nanoseconds
};

/// Whether a stage of this layout is on several ranks, and these differ in speed: then it has no
/// one time, and is not tried.
bool mixes_speeds(Layout layout, const LayerCosts& costs);
/// The stages of a cut, each on the rank of its first micro-batch.
std::vector<StagePlan> plan_stages(const Partition& partition, const Placement& placement);

/// Those of a configuration whose schedule takes its sizes and whose model has the layers for them.
std::vector<StagePlan> stages_of(const Configuration& configuration,
                                 const ConfigurationCosts& costs);

struct Branches {
  std::vector<Branch> open;
  std::map<std::string, int> pruned;
};

inline constexpr const char* kOverMemory = "over the memory limit";
inline constexpr const char* kAlike =
    "recompute by stage, where the least that fits is the same for all stages";
inline constexpr const char* kOrderByCosts =
    "recompute by stage, where the order follows from the costs";

/// Cuts that each shape is tried with.
int cuts_tried(const ConfigurationCosts& costs);

/// What can be made of these shapes on a mesh, each cut by cost and, where that differs, into equal
/// numbers of layers, and where ranks differ in speed, evenly by rank. `limit`: as in limits_of().
Branches branches_of(const ConfigurationCosts& costs, const ParallelSetup& mesh,
                     const std::vector<Shape>& shapes, Bytes limit);

/// Each rank waits for the first micro-batch to reach it, computes everything once, and its last
/// fused backward still has to go down to stage 0, and the stage whose gradients are complete last
/// has to exchange them; where ranks depend on the micro-batch, they share all work at best. One
/// micro-batch at a time takes the work of all ranks.
/// `costs`: by stage.
std::int64_t step_bound(const Configuration& configuration, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs);

/// False only if no order of the configuration can keep to the limits: the state of a rank's
/// stages, and the peak of its activations where a formula knows it, each at least as large as that
/// of its lightest stage.
bool may_fit(const Configuration& configuration, const std::vector<StagePlan>& stages,
             const std::vector<StageMemory>& memory, const RankLimits& limits);

}  // namespace pipewright::planner
