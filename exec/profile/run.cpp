#include "exec/profile/run.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/costs/distribution.hpp"
#include "core/order/devices.hpp"
#include "core/plan/tied_stages.hpp"
#include "core/program/lower.hpp"
#include "exec/base/random.hpp"
#include "exec/base/waiting.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/groups_of_ranks.hpp"
#include "exec/devices/cpu/training_fit.hpp"
#include "exec/devices/metered/device.hpp"
#include "exec/layers/divided/divided_parts.hpp"
#include "exec/runtime/runtime.hpp"

namespace pipewright::exec {
namespace {

constexpr int kLeastSteps = 3, kMostSteps = 200;

/// Ends a run whose time is used up.
struct Enough {};

/// Around a rank's device: notes how long each computation took on the transport's clock. Of an
/// action in parts it is the action's end that notes it, for all of them. On the virtual clock that
/// is the time since the first one began: sums take none there, and a part takes as long as its
/// slowest member. On the wall clock it is what the parts took themselves.
class RecordingDevice final : public Device {
 public:
  RecordingDevice(std::unique_ptr<Device> inner, const Program& program, const Clock& clock,
                  bool is_virtual, ComputationTimes& samples)
      : inner_(std::move(inner)),
        program_(program),
        clock_(clock),
        is_virtual_(is_virtual),
        samples_(samples) {}

  void begin_step(int step) override {
    counts_ = step > 0;
    inner_->begin_step(step);
  }
  void compute(InstructionId id) override {
    const std::int64_t begin = clock_.now();
    if (!begun_) begun_ = begin;
    inner_->compute(id);
    const std::int64_t now = clock_.now();
    so_far_ += now - begin;
    if (program_.code[id].kind == ActionKind::Part) return;
    if (counts_) samples_[id].push_back(is_virtual_ ? now - *begun_ : so_far_);
    begun_.reset();
    so_far_ = 0;
  }
  PayloadPtr give(InstructionId send) override { return inner_->give(send); }
  void accept(InstructionId recv, PayloadPtr payload) override {
    inner_->accept(recv, std::move(payload));
  }
  void end_step() override { inner_->end_step(); }

 private:
  const std::unique_ptr<Device> inner_;
  const Program& program_;
  const Clock& clock_;
  const bool is_virtual_;
  ComputationTimes& samples_;          // each rank has its own instructions
  std::optional<std::int64_t> begun_;  // the action under way
  std::int64_t so_far_ = 0;            // its parts
  bool counts_ = false;
};

int ranks_of(const ProfileCase& what) { return static_cast<int>(what.first_stage.size()); }
int stages_of(const ProfileCase& what) { return static_cast<int>(what.stage_begin.size()); }
int end_stage(const ProfileCase& what, int rank) {
  return rank + 1 < ranks_of(what) ? what.first_stage[static_cast<std::size_t>(rank) + 1]
                                   : stages_of(what);
}

int end_layer(const ProfileCase& what, int stage) {
  return stage + 1 < stages_of(what) ? what.stage_begin[static_cast<std::size_t>(stage) + 1]
                                     : static_cast<int>(what.model->layers.size());
}

/// Adds what one micro-batch asks of all stages of the rank, as one stage of them would do it.
void add_forward(const ProfileCase& what, int rank, int micro_batch, std::vector<Cell>& row) {
  for (int s = what.first_stage[static_cast<std::size_t>(rank)]; s < end_stage(what, rank); ++s)
    row.push_back({.action = {.kind = ActionKind::F,
                              .stage = StageId(s),
                              .micro_batch = MicroBatchId(micro_batch)},
                   .partner = {}});
}
void add_backward(const ProfileCase& what, int rank, int micro_batch, std::vector<Cell>& row) {
  for (const ActionKind kind : {ActionKind::I, ActionKind::W}) {
    for (int s = end_stage(what, rank); s-- > what.first_stage[static_cast<std::size_t>(rank)];)
      row.push_back(
          {.action = {.kind = kind, .stage = StageId(s), .micro_batch = MicroBatchId(micro_batch)},
           .partner = {}});
  }
}

std::vector<StagePlan> stage_plans(const ProfileCase& what) {
  std::vector<StagePlan> stages;
  for (int r = 0; r < ranks_of(what); ++r) {
    for (int s = what.first_stage[static_cast<std::size_t>(r)]; s < end_stage(what, r); ++s)
      stages.push_back({.first_layer = what.stage_begin[static_cast<std::size_t>(s)],
                        .end_layer = end_layer(what, s),
                        .rank = RankId(r)});
  }
  return stages;
}

/// 1F1B over the ranks.
Order order_of(const ProfileCase& what, int micro_batches) {
  Order order;
  order.micro_batches = micro_batches;
  std::vector<RankId> ranks;
  for (int r = 0; r < ranks_of(what); ++r) {
    for (int s = what.first_stage[static_cast<std::size_t>(r)]; s < end_stage(what, r); ++s)
      ranks.emplace_back(r);
    std::vector<Cell>& row = order.ranks.emplace_back();
    const int ahead = std::min(ranks_of(what) - r, micro_batches);
    for (int m = 0; m < ahead; ++m) add_forward(what, r, m, row);
    for (int m = 0; m < micro_batches; ++m) {
      add_backward(what, r, m, row);
      if (m + ahead < micro_batches) add_forward(what, r, m + ahead, row);
    }
  }
  order.placement = Placement::explicit_stages(std::move(ranks), ranks_of(what));
  if (what.division != StageDivision{})
    order.parts = divided_parts(*what.model, stage_plans(what), what.micro_batch_size, {},
                                what.division, what.options.numerics);
  order.mesh = axes_of(what.division);
  // Along any other axis than tp and cp data differ, and these hold the same parameters.
  if (what.replicas > 1) order.mesh.push_back({"dp", what.replicas});
  return written_out(order);
}

std::unique_ptr<DataSource> data_for(const ProfileCase& what, int micro_batches) {
  const DataShape shape{
      .samples = what.micro_batch_size, .micro_batches = micro_batches, .seed = what.seed};
  if (!what.data.data.empty()) return make_data(*what.model, shape, what.data);
  const Layer* front = &what.model->layers.front();
  while (front->kind != LayerKind::Embedding && !front->inner.empty())
    front = &front->inner.front();
  if (front->kind != LayerKind::Embedding) return make_data(*what.model, shape, "");
  std::string text(static_cast<std::size_t>(what.model->sequence) * 16 + 1, ' ');
  const auto letters = static_cast<std::uint64_t>(std::clamp(front->vocabulary, 1, 256));
  for (std::size_t k = 0; k < text.size(); ++k)
    text[k] = static_cast<char>(uniform_below(what.seed, k, letters));
  return text_source(*what.model, shape, std::move(text), "random text");
}

cpu::Training training_of(const ProfileCase& what, int micro_batches, const DataSource& data) {
  cpu::Training training;
  training.model = what.model;
  training.stages = stage_plans(what);
  training.micro_batch_size = what.micro_batch_size;
  training.micro_batches = micro_batches;
  training.seed = what.seed;
  training.optimizer = what.optimizer;
  training.options = what.options;
  training.options.ranks.rows = what.division.rows;
  training.options.ranks.fold = what.division.fold;
  training.options.ranks.ring = what.division.ring;
  training.data = &data;
  training.clock = what.clock;
  return training;
}

void sort_samples(const Program& program, const ComputationTimes& by_instruction,
                  ProfileSamples& samples) {
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (!is_compute(in.kind) && in.kind != ActionKind::Opt) continue;
    const auto& found = by_instruction[id];
    StageSamples& stage = samples.stages[in.stage];
    auto& to = in.kind == ActionKind::Opt
                   ? samples.opt[static_cast<std::size_t>(program.rank_of(id).value) /
                                 static_cast<std::size_t>(devices_of_rank(program.devices))]
               : in.kind == ActionKind::F ? stage.f
               : in.kind == ActionKind::I ? stage.i
                                          : stage.w;
    to.insert(to.end(), found.begin(), found.end());
  }
}

RunResult train_on_cpu(const Program& program, const cpu::Training& training,
                       const RunOptions& options, ComputationTimes& by_instruction) {
  const CostTable free = CostTable::uniform(program.stages, {});
  std::mutex turn;
  local::LocalTransport transport(program, local::real_messages(program, free), training.clock);
  std::vector<cpu::GroupsOfRank> groups =
      cpu::groups_of_ranks(program, cpu::division_of(program, training), transport);
  const DeviceFactory make = [&](RankId rank, Clock& clock) {
    std::unique_ptr<Device> device =
        std::make_unique<cpu::Device>(program, training, rank, &transport,
                                      std::move(groups[static_cast<std::size_t>(rank.value)]));
    if (training.clock == local::ClockKind::Virtual)
      device = std::make_unique<local::MeteredDevice>(std::move(device), rank, clock, turn);
    return std::make_unique<RecordingDevice>(std::move(device), program, clock,
                                             training.clock == local::ClockKind::Virtual,
                                             by_instruction);
  };
  return run(program, free, transport, make, options);
}

/// What the last stage needs besides its input.
MicroBatch answers_for(const Model& model, int micro_batch_size, std::size_t floats) {
  MicroBatch batch;
  if (model.loss == LossKind::SoftmaxCrossEntropy) {
    batch.labels.assign(
        static_cast<std::size_t>(micro_batch_size) * static_cast<std::size_t>(model.sequence), 0);
  } else {
    batch.targets.assign(floats, 0.25F);
  }
  return batch;
}

}  // namespace

LossTimes measure_loss(const Model& model, int micro_batch_size, local::ClockKind clock) {
  constexpr int kRepeats = 20;
  const auto layers = static_cast<int>(model.layers.size());
  cpu::Stage stage(model, layers, layers, micro_batch_size, 1, 1);
  const std::vector<float> input(stage.input_floats(), 0.5F);
  const MicroBatch batch = answers_for(model, micro_batch_size, stage.input_floats());
  const auto now = clock == local::ClockKind::Virtual ? local::thread_cpu_ns : local::steady_ns;
  std::vector<std::int64_t> forward, backward;
  for (int k = 0; k < kRepeats; ++k) {
    stage.set_batch(0, batch);
    std::vector<float> message = input;
    const std::int64_t begin = now();
    stage.forward(0, std::move(message));
    const std::int64_t middle = now();
    stage.backward_input(0, {});
    const std::int64_t end = now();
    stage.backward_weight(0);
    forward.push_back(middle - begin);
    backward.push_back(end - middle);
  }
  return {distribution_of(std::move(forward)).median().value,
          distribution_of(std::move(backward)).median().value};
}

ProfileSamples run_profile_case(const ProfileCase& what) {
  const int micro_batches = std::max(4, 2 * ranks_of(what));
  const int of_replicas = micro_batches * what.division.experts * what.replicas;
  const auto data = data_for(what, of_replicas);
  const cpu::Training training = training_of(what, of_replicas, *data);
  const Program program =
      lower(order_of(what, micro_batches), CommPolicy{},
            {.optimizer = true, .tied = tied_stages(*training.model, training.stages)});
  ComputationTimes by_instruction(program.code.size());
  ProfileSamples samples;
  const std::int64_t begin = local::steady_ns();
  RunOptions options{.steps = kMostSteps, .median_timeline = false};
  options.interrupted = what.interrupted;
  options.on_step = [&](int step, const StepResult&) {
    samples.steps = step;  // without the first
    const bool used_up = local::steady_ns() - begin > what.budget_ns;
    if (used_up && step >= kLeastSteps) throw Enough{};
  };
  try {
    const RunResult result = what.backend != nullptr
                                 ? what.backend->train(program, training, options, by_instruction)
                                 : train_on_cpu(program, training, options, by_instruction);
    if (result.outcome == Outcome::Interrupted) throw RunError("profiling was interrupted");
  } catch (const Enough&) {
  }
  samples.stages.resize(static_cast<std::size_t>(program.stages));
  samples.opt.resize(static_cast<std::size_t>(ranks_of(what)));
  sort_samples(program, by_instruction, samples);
  return samples;
}

}  // namespace pipewright::exec
