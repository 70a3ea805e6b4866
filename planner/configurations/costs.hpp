// What a configuration costs: the seam between the search and where its numbers come from. Two
// sources: the layers' measured times or operation counts (planner/costs/cost_model.hpp), and the
// analytical estimate of a transformer (planner/estimate/), which also knows tensor, context and
// expert parallelism. Immutable; any number of threads may ask.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "planner/bounds/wires.hpp"
#include "planner/estimate/cost_scales.hpp"
#include "planner/estimate/parallel_space.hpp"
#include "planner/estimate/stage_parts.hpp"
#include "planner/partition/partition.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// Stages if all devices and samples were alike.
struct AlikeStages {
  std::vector<StageCosts> whole, computations;
};

class ConfigurationCosts {
 public:
  virtual ~ConfigurationCosts() = default;

  /// The setups that the job allows, without chunks. `pipeline` stands in for the job's pp_degree
  /// where it is not empty.
  virtual void for_each_mesh(const std::vector<int>& pipeline,
                             const SpaceVisitor& visitor) const = 0;
  /// Why nothing runs or can be priced on this mesh; nullopt: nothing is wrong.
  virtual std::optional<Refusal> refusal(const ParallelSetup& mesh) const = 0;

  /// No schedule on this mesh that computes or sends, one at a time, ends earlier, in nanoseconds;
  /// 0 says nothing.
  virtual std::int64_t least_step(const ParallelSetup& mesh) const = 0;
  /// The same of schedules that may hide what is sent inside stages (Schedule::overlaps).
  virtual std::int64_t least_overlapped_step(const ParallelSetup& mesh) const {
    return least_step(mesh);
  }
  /// What a balanced cut divides: F and B of each of the model's layers on each rank, in
  /// nanoseconds.
  virtual LayerCosts layer_costs(const ParallelSetup& mesh) const = 0;
  /// stage_costs(), stage_memory() and table() go by mesh.recompute.of_all;
  /// planner/branches/recompute_by_stage.hpp puts stages with their own recompute together.
  /// `reduce` and `unshard` have the least that a stage's replicas exchange, where that is not part
  /// of OPT.
  virtual std::vector<StageCosts> stage_costs(const ParallelSetup& mesh,
                                              std::span<const StagePlan> stages) const = 0;
  virtual std::vector<StageMemory> stage_memory(const ParallelSetup& mesh,
                                                std::span<const StagePlan> stages) const = 0;
  /// The messages of each replica that differs in them; empty where nothing is known of messages.
  virtual std::vector<Wires> wires(const ParallelSetup& mesh,
                                   std::span<const StagePlan> stages) const = 0;
  /// Under the policy with which the job runs the schedule.
  virtual Sending sending(const Schedule& schedule) const = 0;
  /// Everything that simulating `replicas` of the pipeline needs.
  virtual CostTable table(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                          int replicas) const = 0;
  /// Of which computations and messages the stages' actions consist, whose costs are `whole`; no
  /// parts where a stage is one piece.
  virtual StageParts stage_parts(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                                 std::span<const StageCosts> whole) const = 0;
  /// StageParts::computations.
  virtual std::vector<StageCosts> stage_computations(const ParallelSetup& mesh,
                                                     std::span<const StagePlan> stages,
                                                     std::span<const StageCosts> whole) const {
    return stage_parts(mesh, stages, whole).computations;
  }
  /// What a stage may compute again where each has its own (SetupRecompute::by_stage), the
  /// least first.
  virtual std::vector<LayerRecompute> recompute_kinds() const = 0;
  /// Whether the job's meshes have it for all stages alike.
  virtual bool has_recompute(LayerRecompute recompute) const = 0;
  /// False where training.recompute says what is computed again, whatever a mesh has.
  virtual bool chooses_recompute() const = 0;

  /// How many replicas have to be simulated to time a step: one where a stage's costs include what
  /// replicas exchange; elsewhere as many as differ, at least two. table() of that many prices the
  /// exchange of all.
  virtual int simulated_replicas(const ParallelSetup& mesh) const = 0;

  // Where devices are slow or samples unequal (planner/configurations/uneven_work.hpp); elsewhere
  // none of these does anything.
  /// Why the schedule is not tried.
  virtual std::optional<LeftOut> leaves_out(const Schedule&) const { return std::nullopt; }
  /// Whether some actions take another time than their stage says.
  virtual bool has_action_times(const ParallelSetup&) const { return false; }
  /// The costs if all devices and samples were alike.
  virtual const ConfigurationCosts& alike() const { return *this; }
  /// Puts what differs from table.stages into a table of so many replicas. `stages`: what they take
  /// by alike(), and what of it is computed, and not told other devices of the rank.
  virtual void add_action_times(const ParallelSetup&, std::span<const StagePlan>, int /*replicas*/,
                                const AlikeStages&, CostTable&) const {}
  /// From a time that no order beats if all actions take what stage_costs() says, here `costs` or
  /// more, one that none beats as they are.
  virtual std::int64_t least_with_action_times(const ParallelSetup&, std::span<const StagePlan>,
                                               std::span<const StageCosts> /*costs*/,
                                               std::int64_t least) const {
    return least;
  }

  /// The fullest rank holds at least this; 0 says nothing.
  virtual Bytes least_memory(const ParallelSetup& mesh) const = 0;
  virtual Bytes memory_limit() const = 0;  // of any rank; 0: none
  /// Whether ranks may differ in speed.
  virtual bool knows_speeds() const = 0;
  /// The limit of each rank, where nodes differ; empty: memory_limit().
  virtual std::vector<Bytes> rank_memory(const ParallelSetup& mesh) const = 0;
  virtual bool is_estimated() const = 0;
  /// Where the numbers come from, and what else a reader of a plan has to know: sentences.
  virtual std::vector<std::string> remarks(const ParallelSetup& mesh) const = 0;
};

/// The two sources.
/// `alike`, the job's costs, as its slow devices and its samples of unequal length change them;
/// `alike` itself where it has none. References `job`, which has to live as long. Throws InputError
/// where the job has these and something that they are not looked at with.
std::unique_ptr<ConfigurationCosts> uneven_configurations(
    const Job& job, std::unique_ptr<ConfigurationCosts> alike);
std::unique_ptr<ConfigurationCosts> layer_configurations(const Job& job, const Profile* profile,
                                                         int cores);
/// Scales, and how they were found: "times 1.2 by a measured step", for the cost table, whose
/// source is short; and "times 1.2 by the measured step of tp=8".
struct FittedCosts {
  CostScales scales;
  std::string brief, full;
};
std::unique_ptr<ConfigurationCosts> estimated_configurations(const Job& job,
                                                             const Architecture& model,
                                                             const FittedCosts& fitted = {});

}  // namespace pipewright::planner
