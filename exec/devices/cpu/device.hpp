// The CPU as a device: the stages of one rank (exec/devices/cpu/stage.hpp), and the activations and
// gradients that wait for their next reader. Numerics are the Stage's; this only moves vectors and
// says which weights to use. The two actions of a pair run one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/model/model.hpp"
#include "core/plan/plan.hpp"
#include "core/program/program.hpp"
#include "core/program/version_uses.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/collectives/group.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/stage.hpp"
#include "exec/devices/cpu/strands.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/runtime/device.hpp"
#include "exec/runtime/phases.hpp"
#include "exec/runtime/waiting_tensors.hpp"
#include "exec/training/gradient_sums.hpp"
#include "exec/training/rank_stages.hpp"
#include "exec/training/training_result.hpp"
#include "exec/transports/local/transport.hpp"

namespace pipewright::exec::cpu {

/// What is trained; all it points to must outlive the run.
struct Training {
  const Model* model = nullptr;
  std::vector<StagePlan> stages;  // by stage: its layers
  int micro_batch_size = 1, micro_batches = 1;
  std::uint64_t seed = 1;
  OptimizerSpec optimizer;
  StageOptions options;
  const DataSource* data = nullptr;
  RunMode mode = RunMode::Train;
  OutputSink outputs;          // of RunMode::Predict
  PhaseLog* phases = nullptr;  // may be null
  /// So many steps, from the first one, are compared with a serial run, every replica of a stage by
  /// itself. The serial steps are computed between the steps of the run and do not count in their
  /// times. An asynchronous order has no serial run to agree with.
  int verified_steps = 0;
  /// Go on from this checkpoint; null: start with the parameters that the seed gives.
  const Checkpoint* start = nullptr;
  std::optional<CheckpointSpec> save;

  /// Steps of the training before this run.
  int first_step() const {
    return start == nullptr || mode != RunMode::Train ? 0 : start->facts().step;
  }
  /// Virtual: a computation takes its thread's CPU time and a transfer what the cost table says
  /// (exec/devices/metered/device.hpp), so that more ranks than cores show the timeline of as many
  /// devices.
  local::ClockKind clock = local::ClockKind::Wall;
};

class Device final : public exec::Device {
 public:
  /// All must outlive it. The transport carries the parts of collectives; it is needed where the
  /// Program has some. `groups`: the ranks that divide this rank's stages.
  Device(const Program& program, const Training& training, RankId rank,
         Transport* transport = nullptr, GroupsOfRank groups = {});

  void begin_step(int step) override;
  void compute(InstructionId id) override;
  PayloadPtr give(InstructionId send) override;
  void accept(InstructionId recv, PayloadPtr payload) override;
  void end_step() override;
  std::optional<double> loss() const override;
  /// Forward only: empty, because the outcomes say it.
  std::string not_finite() const override;

  /// This rank's stages; to be looked at while all ranks stand still.
  std::vector<const Stage*> stages() const;
  /// Forward only: where the last stage's outcomes go.
  void put_outcomes_into(Evaluation& evaluation) { evaluation_ = &evaluation; }
  /// Null if another rank has it.
  Stage* stage(StageId stage) const { return stages_.find(stage.value); }
  /// The ranks that divide this rank's stages with it. While all ranks stand still.
  const GroupsOfRank& groups() const { return strands_.groups(); }
  /// The most versions of a stage's weights that lived at once.
  int peak_versions() const;
  /// The most that this rank's stages, the tensors that wait for a reader, and its copies of
  /// gradients for other ranks held at once so far.
  std::int64_t peak_bytes() const;

 private:
  void perform(InstructionId id, const Action& action);
  void prepare(const Action& action);
  void compute_part(const Action& action);
  void put(Flow flow, int stage, int micro_batch, std::vector<float> tensor);
  std::vector<float> fetch(Flow flow, int stage, int micro_batch);
  void hold_part(const GradientPart& part);
  void recount(int stage);
  void update(InstructionId id);
  void own_shards();
  void give_weights(InstructionId member);
  void take_weights(InstructionId member);
  void take_sum(InstructionId member);
  void drop_weights(int stage);
  void let_go_of_part(InstructionId member);
  void drop_versions(InstructionId id, const Action& action);
  /// In the rank's list.
  std::size_t place_of(InstructionId id) const;

  const Program& program_;
  const Training& training_;
  MemoryMeter meter_;                  // the stages report to it
  std::vector<std::int64_t> counted_;  // of the meter, by stage: what it always holds
  const RankId rank_;
  const VersionUses versions_;
  GradientSums sums_;
  using Stages = RankStages<Stage, std::vector<float>>;
  Stages stages_;
  const Stages::Messages messages_;
  Strands strands_;
  WaitingTensors<std::vector<float>> tensors_;
  Transport* const transport_;
  Evaluation* evaluation_ = nullptr;
  int step_ = 0;
  std::int64_t handed_in_ = 0;  // bytes of gradients for others, until the step's end
  /// Of these, what goes when its collective has ended, by member.
  std::map<InstructionId, std::int64_t> until_ended_;
};

/// What a run on CPUs adds.
struct CpuResult : TrainingResult {
  /// By rank: the most versions of a stage's weights that lived at once. Empty if the last step did
  /// not end.
  std::vector<int> peak_weight_versions;
};

/// Trains on this machine's CPU, one thread a rank (exec/devices/cpu/run.cpp). Throws InputError if
/// the Program does not fit the training, and what run() throws.
CpuResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options = {});
/// Makes the group of these ranks, which are processes; null in all others. Every process calls it
/// for the same groups in the same order.
using GroupOfProcesses = std::function<std::unique_ptr<collectives::Group>(
    std::span<const RankId> ranks, const collectives::Look& look)>;

/// The same on another transport. Where its ranks are several processes, all of them call this
/// alike; process 0 gets the comparison with a serial run. `group_of` is needed where ranks that
/// are processes divide layers.
CpuResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options, Transport& transport,
                     const GroupOfProcesses& group_of = {});

}  // namespace pipewright::exec::cpu
