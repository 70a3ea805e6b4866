#include <algorithm>
#include <cmath>
#include <utility>

#include "exec/cpu/checkpointing.hpp"
#include "exec/cpu/device.hpp"
#include "exec/cpu/training_fit.hpp"
#include "exec/local/transport.hpp"
#include "exec/serial.hpp"
#include "exec/verify.hpp"

namespace pipewright::exec::cpu {
namespace {

using Devices = std::vector<Device*>;  // by rank

/// The stages of the model once each, taken from their n-th replica, or the last where there are
/// fewer.
std::vector<const Stage*> replica_set(const Program& program, const Devices& devices,
                                      std::size_t n) {
  std::vector<const Stage*> chosen;
  std::vector<std::vector<const Stage*>> replicas(static_cast<std::size_t>(program.stages));
  for (std::size_t r = 0; r < devices.size(); ++r) {
    const auto ids = program.placement.stages_of(RankId(static_cast<std::int64_t>(r)));
    const auto stages = devices[r]->stages();
    for (std::size_t i = 0; i < ids.size(); ++i)
      replicas[static_cast<std::size_t>(ids[i].value)].push_back(stages[i]);
  }
  for (const auto& of_stage : replicas) {
    if (!of_stage.empty()) chosen.push_back(of_stage[std::min(n, of_stage.size() - 1)]);
  }
  return chosen;
}

/// How many replicas the stage with the most of them has.
std::size_t replicas_of(const Program& program) {
  std::vector<std::size_t> count(static_cast<std::size_t>(program.stages), 0);
  for (int r = 0; r < program.ranks(); ++r) {
    for (const StageId stage : program.placement.stages_of(RankId(r)))
      ++count[static_cast<std::size_t>(stage.value)];
  }
  return *std::max_element(count.begin(), count.end());
}

/// A serial run beside the real one, step by step.
class Verifier {
 public:
  Verifier(const Program& program, const Training& training)
      : program_(program),
        training_(training),
        updates_(std::any_of(program.code.begin(), program.code.end(),
                             [](const auto& in) { return in.kind == ActionKind::Opt; })),
        replicas_(replicas_of(program)),
        serial_(*training.model, {.micro_batch_size = training.micro_batch_size,
                                  .micro_batches = training.micro_batches,
                                  .seed = training.seed,
                                  .optimizer = training.optimizer}) {
    if (training.start != nullptr) restore(serial_.stage(), *training.start);
  }

  /// Keeps the worst of all steps and replicas.
  void compare(int step, const Devices& devices) {
    const int at = training_.first_step() + step;
    updates_ ? serial_.step(*training_.data, at) : serial_.gradients(*training_.data, at);
    for (std::size_t n = 0; n < replicas_; ++n) {
      const auto views = parameters_of(replica_set(program_, devices, n));
      const VerifyReport found = verify(views, serial_.stage().parameters());
      const double known = worst_ ? worst_->gradients.norm_rel : -1;
      const bool is_worse =
          std::isnan(found.gradients.norm_rel) || found.gradients.norm_rel > known;
      if (is_worse) worst_ = found;
    }
  }

  const std::optional<VerifyReport>& worst() const { return worst_; }

 private:
  const Program& program_;
  const Training& training_;
  const bool updates_;
  const std::size_t replicas_;
  SerialRun serial_;
  std::optional<VerifyReport> worst_;
};

}  // namespace

RunResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options) {
  require_fit(program, training);
  if (training.start != nullptr) require_resumable(*training.start, program, training);
  GradientExchange exchange(program);
  Devices devices(static_cast<std::size_t>(program.ranks()));
  std::optional<Evaluation> evaluation;
  if (training.mode != RunMode::Train)
    evaluation.emplace(*training.model, training.mode, program.micro_batches, training.outputs);
  const DeviceFactory make = [&](RankId rank, Clock&) {
    auto device = std::make_unique<Device>(program, training, rank, &exchange);
    if (evaluation) device->put_outcomes_into(*evaluation);
    devices[static_cast<std::size_t>(rank.value)] = device.get();
    return device;
  };
  std::optional<Verifier> verifier;
  if (training.verified_steps > 0) verifier.emplace(program, training);
  std::optional<CheckpointSaver> saver;
  if (training.save) saver.emplace(program, training, options.steps);
  std::vector<int> peak_versions;
  RunOptions watching = options;
  watching.on_step = [&](int step, const StepResult& result) {
    if (step < training.verified_steps) verifier->compare(step, devices);
    peak_versions.clear();
    for (const Device* device : devices) peak_versions.push_back(device->peak_versions());
    if (evaluation) evaluation->end_step();
    if (saver) saver->after_step(step, devices);
    if (options.on_step) options.on_step(step, result);
  };
  local::LocalTransport transport(program, local::real_messages(program, costs));
  RunResult result = run(program, costs, transport, make, watching);
  result.first_step = training.first_step();
  if (evaluation) result.evaluation = evaluation->report();
  if (verifier) result.verify = verifier->worst();
  result.peak_weight_versions = std::move(peak_versions);
  return result;
}

}  // namespace pipewright::exec::cpu
