// The branches of the search: a mesh grows into configurations with stages, a time that none of
// their orders beats and what they hold at least. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/configuration_costs.hpp"
#include "planner/partition.hpp"
#include "planner/search_space.hpp"

namespace pipewright::planner {

struct Branch {
  Configuration configuration;
  std::shared_ptr<const std::vector<StagePlan>> stages;  // several branches have the same
  std::int64_t bound = 0;                                // nanoseconds
};

/// The stages of a cut, each on the rank of its first micro-batch.
std::vector<StagePlan> plan_stages(const Partition& partition, const Placement& placement);

struct Branches {
  std::vector<Branch> open;
  std::map<std::string, int> pruned;
};

inline constexpr const char* kOverMemory = "over the memory limit";
inline constexpr const char* kOrderByCosts =
    "recompute by stage, where the order follows from the costs";

/// What can be made of these shapes on a mesh, each cut by cost and, where that differs, into equal
/// numbers of layers. `limit`: of a rank's memory, 0: none.
Branches branches_of(const ConfigurationCosts& costs, const ParallelSetup& mesh,
                     const std::vector<Shape>& shapes, Bytes limit);

/// Each rank waits for the first micro-batch to reach it, computes everything once, and its last
/// fused backward still has to go down to stage 0; where ranks depend on the micro-batch, they
/// share all work at best. `costs`: by stage.
std::int64_t step_bound(const Configuration& configuration, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs);

/// False only if no order of the configuration can keep to the limit: the state of a rank's stages,
/// and the peak of its activations where a formula knows it, each at least as large as that of its
/// lightest stage.
bool may_fit(const Configuration& configuration, const std::vector<StagePlan>& stages,
             const std::vector<StageMemory>& memory, Bytes limit);

}  // namespace pipewright::planner
