// The branches of the search: a mesh grows into configurations with stages, a time that none of
// their orders beats and what they hold at least. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/branches/flow_bound.hpp"
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

/// Whether this layout puts a stage on several ranks that differ in speed: such a stage has no
/// single time, and the layout is not tried.
bool mixes_speeds(Layout layout, const LayerCosts& costs);
/// The stages of a cut, each on the rank of its first micro-batch.
std::vector<StagePlan> plan_stages(const Partition& partition, const Placement& placement);

/// The stages of a configuration whose schedule takes its sizes and whose model has the layers for
/// them.
std::vector<StagePlan> stages_of(const Configuration& configuration,
                                 const ConfigurationCosts& costs);
/// The same where an order has put its stages elsewhere than the schedule would.
std::vector<StagePlan> stages_of(const Configuration& configuration,
                                 const ConfigurationCosts& costs, const Placement& placement);

struct Branches {
  std::vector<Branch> open;
  LeftOutCounts pruned;
};

/// Cuts that each shape is tried with.
int cuts_tried(const ConfigurationCosts& costs);

/// The branches of these shapes on a mesh. Each shape is cut by cost; where that differs, also into
/// equal numbers of layers; and where ranks differ in speed, also evenly by rank. `limit`: as in
/// limits_of().
Branches branches_of(const ConfigurationCosts& costs, const ParallelSetup& mesh,
                     const std::vector<Shape>& shapes, Bytes limit);

/// A time that no order of the configuration beats. Each rank waits for the first micro-batch to
/// reach it and computes everything once. After that comes whichever takes longer: the way of its
/// last fused backward down to stage 0, or the exchange of the gradients that are complete last.
/// Where ranks depend on the micro-batch, they share all work at best. A schedule with one
/// micro-batch at a time takes the work of all ranks. `costs`: by stage.
std::int64_t step_bound(const Configuration& configuration, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs);

/// flow_bound() of a configuration whose stages are known; of a schedule in whose pairs one action
/// computes while the other communicates, of computations alone.
std::int64_t bound_of(const Configuration& configuration, const std::vector<StagePlan>& stages,
                      const ConfigurationCosts& costs);
/// The same with what its stages cost, and what its ranks have room for.
std::int64_t bound_of(const Configuration& configuration, const std::vector<StagePlan>& stages,
                      const ConfigurationCosts& costs, std::vector<StageCosts> of_stage,
                      const Room& room);
/// No limit where stages are on several ranks.
Room room_of(const Configuration& configuration, const std::vector<StagePlan>& stages,
             const std::vector<StageMemory>& memory, const RankLimits& limits);

/// False only if no order of the configuration can keep to the limits, by the state of a rank's
/// stages and, where a formula knows the peak of its activations, by that peak with each activation
/// as large as that of the rank's lightest stage.
bool may_fit(const Configuration& configuration, const std::vector<StagePlan>& stages,
             const std::vector<StageMemory>& memory, const RankLimits& limits);

}  // namespace pipewright::planner
