// A GPU, or a part of one, as a device: the stages of one rank (exec/devices/cuda/stage.hpp).
// compute() puts work on the rank's computing stream and returns; a message carries an event that
// is recorded after the work that made it, and the rank that takes it copies it into its own memory
// on a stream of its own, which waits for that event and for nothing else. So a whole step is
// enqueued ahead of the GPU, by a thread a rank or by one thread in the Program's order.
//
// With a StepGraph the second step is captured, and from the third on nothing is enqueued but its
// launch: computations and messages then do nothing here.
//
// The host waits for the GPU in end_step() alone, and where numbers have to leave it inside a step:
// at collectives, unless the transport sums, or ranks that are threads of one process add up sums
// of squares and copies of replicas' gradients and of tied tables
// (exec/devices/cuda/gradient_copies.hpp). Times of computations are the GPU's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/program/program.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/strands.hpp"
#include "exec/devices/cuda/action_ranges.hpp"
#include "exec/devices/cuda/activity_marks.hpp"
#include "exec/devices/cuda/clipping.hpp"
#include "exec/devices/cuda/member_sums.hpp"
#include "exec/devices/cuda/payload.hpp"
#include "exec/devices/cuda/stage.hpp"
#include "exec/devices/cuda/step_graph.hpp"
#include "exec/devices/cuda/tied_tables.hpp"
#include "exec/devices/cuda/timeline.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "exec/runtime/device.hpp"
#include "exec/runtime/waiting_tensors.hpp"
#include "exec/training/rank_stages.hpp"

namespace pipewright::exec::cuda {

/// How a GPU trains; all it points to must outlive the run.
struct CudaTraining {
  cpu::Training training;
  Precision precision = Precision::Float32;
  /// Of each route, how long a message is held before it is copied, to replay a slower link
  /// (exec/devices/cuda/slow_link.hpp); empty: it is not.
  std::vector<std::int64_t> hold_ns;
  /// What each computation took, at the end of every step but the first; called by its rank's
  /// thread. May be empty.
  std::function<void(InstructionId id, std::int64_t ns)> on_computation;
  /// From the third step on a step is one graph (exec/devices/cuda/step_graph.hpp).
  bool as_graph = false;
  /// Records what the GPUs do in the last step, which is then the one that is shown.
  bool records_work = false;
};

/// Throws InputError if the training asks for what no GPU does yet: weight versions, or layers by
/// name.
void require_trainable(const Program& program, const CudaTraining& training,
                       bool over_nccl = false);

class Device final : public exec::Device {
 public:
  /// All must outlive it. The transport carries the parts of collectives, and the step's clock.
  /// `times` and `graph` may be null. `groups`: the ranks that divide this rank's stages.
  Device(const pipewright_cuda& cuda, const QueueSite& site, const Program& program,
         const CudaTraining& training, RankId rank, Transport& transport,
         TransferSpans* times = nullptr, StepGraph* graph = nullptr, cpu::GroupsOfRank groups = {});
  /// Waits for what is still under way, if the run ended early.
  ~Device() override { queue_.drain(); }

  void begin_step(int step) override;
  void compute(InstructionId id) override;
  PayloadPtr give(InstructionId send) override;
  void accept(InstructionId recv, PayloadPtr payload) override;
  void end_step() override;
  /// A profiler sees work that is enqueued; a step that is captured or replayed is one range. What
  /// a graph does is known by who has captured it.
  void begin_instruction(InstructionId id) override {
    if (way_ == StepWay::Enqueued) ranges_.begin(id);
    marks_.begin(id);
  }
  void end_instruction() noexcept override {
    if (way_ == StepWay::Enqueued) ranges_.end();
    marks_.end();
  }
  std::optional<double> loss() const override;
  std::string not_finite() const override;
  void timestamps(Timeline& timeline) const override { timeline_.write(timeline); }

  /// Does the work of a step with nothing in it, and sends and updates nothing: afterwards the
  /// rank's memory is there and its kernels are loaded. What CUDA does for either may wait for all
  /// of a GPU's work, and a kernel of NCCL waits for other ranks. By the rank's thread, before the
  /// first step.
  void rehearse();

  /// This rank's stages, whose parameters() have the weights and gradients as they were at the end
  /// of the last step, if it is one that is verified. While all ranks stand still; any thread.
  std::vector<const Stage*> stages() const { return {stages_.own().begin(), stages_.own().end()}; }
  /// Null if another rank has it. Its state() is that at the end of the last step, if it is one of
  /// those of save_after(). Likewise.
  Stage* stage(StageId stage) const { return stages_.find(stage.value); }
  /// The ranks that divide this rank's stages with it. While all ranks stand still.
  const cpu::GroupsOfRank& groups() const { return strands_.groups(); }
  /// Which steps of the run leave their state on the host.
  void save_after(std::function<bool(int step)> is_saved) { is_saved_ = std::move(is_saved); }
  /// Forward only: where the last stage's outcomes go. It must outlive this.
  void put_outcomes_into(Evaluation& evaluation) { evaluation_ = &evaluation; }
  /// Of activations and messages, and of weights, gradients and optimizer state.
  PoolFigures memory_figures() { return queue_.memory().figures(); }
  PoolFigures message_figures() { return queue_.messages().figures(); }
  PoolFigures weight_figures() { return queue_.weights().figures(); }
  /// Among the weights: of gradients, for other ranks.
  std::int64_t copy_bytes() const;
  /// Of cuBLAS, and what the transport has told.
  std::int64_t workspace_bytes() const { return queue_.workspace_bytes(); }
  std::int64_t transport_bytes() const { return transport_bytes_; }
  void note_transport_bytes(std::int64_t bytes) { transport_bytes_ = bytes; }

  /// When the host had enqueued all of the step, in ns from its start.
  std::int64_t enqueued_ns() const { return enqueued_ns_; }

  /// For a transport that puts work of its own on this rank's GPU.
  Queue& queue() { return queue_; }
  /// As this rank's own work: the thread is on its GPU, and in its capture where there is one.
  void enter_step() { static_cast<void>(enter()); }
  /// Told at the beginning of each step.
  void tell_way(std::function<void(StepWay)> told) { told_way_ = std::move(told); }
  /// For one that sums on GPUs: from now on it gets gradients of a REDUCE_GRAD, squares of a
  /// REDUCE_NORM and tables of a REDUCE_TIED as a DevicePart, and gathered() gives one back. Not in
  /// exact numerics, whose sums are no floats.
  void leave_sums_to_transport();
  DeviceTimeline& timeline() { return timeline_; }
  /// Of what a RECV of this rank brings.
  std::size_t message_bytes(InstructionId recv);

 private:
  /// What waits for its reader.
  struct Waiting {
    Buffer buffer;
    Event ready;              // null: the computing stream has made it
    bool is_arrival = false;  // and the computing stream must wait for `ready`
  };

  void sum_among_threads();
  void await_input(const Action& action);
  void perform(const Action& action);
  void compute_part(const Action& action);
  void give_sum(InstructionId call);
  void take_sum(InstructionId call);
  void share_blocks();
  void rehearse(InstructionId id);
  void rehearse_computation(InstructionId id);
  void rehearse_collective(const Instruction& in);
  void update();
  void give_weights(InstructionId member);
  void take_weights(InstructionId member);
  void put(Flow flow, int stage, int micro_batch, Buffer buffer);
  Buffer fetch(Flow flow, int stage, int micro_batch);
  Waiting arrived(InstructionId recv, DevicePayload& payload);
  /// The thread is on its GPU, and may put work there as long as it holds this.
  std::unique_lock<std::mutex> enter();
  void enqueue_end();
  void put_outcomes();
  void wait_for_step();
  void look_at_step();
  /// What polls do in between: notices that the run was stopped.
  std::function<void()> between();

  const pipewright_cuda& cuda_;
  const Program& program_;
  const CudaTraining& training_;
  const RankId rank_;
  Transport& transport_;
  TransferSpans* const times_;
  StepGraph* const graph_;
  std::function<bool(int step)> is_saved_;
  Evaluation* evaluation_ = nullptr;
  Queue queue_;
  DeviceTimeline timeline_;
  ActionRanges ranges_;
  ActivityMarks marks_;
  std::optional<Clipping> clipping_;  // none: the Program has no norm
  TiedTables tied_tables_;
  GradientSums sums_;
  RankStages<Stage, Buffer> stages_;
  const RankStages<Stage, Buffer>::Messages messages_;
  cpu::Strands strands_;
  MemberSums member_sums_;
  bool transport_sums_ = false;
  WaitingTensors<Waiting> tensors_;
  std::vector<Buffer> reduced_;  // in a rehearsal: whole gradients that are on their way
  int step_ = 0, step_of_run_ = 0;
  StepWay way_ = StepWay::Enqueued;
  std::function<void(StepWay)> told_way_;
  bool has_joined_ = false;  // the capture
  std::int64_t enqueued_ns_ = 0, transport_bytes_ = 0;
};

}  // namespace pipewright::exec::cuda
