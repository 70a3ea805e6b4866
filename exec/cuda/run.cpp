#include "exec/cuda/run.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "exec/cpu/training_fit.hpp"
#include "exec/cuda/local_transport.hpp"
#include "exec/serial.hpp"
#include "exec/verify.hpp"

namespace pipewright::exec::cuda {
namespace {

/// A serial run on the CPU beside the real one, step by step; keeps the worst of all.
class Verifier {
 public:
  explicit Verifier(const CudaTraining& how)
      : training_(how.training),
        numerics_(how.precision == Precision::Exact ? Numerics::Exact : Numerics::Fast),
        serial_(*training_.model, {.micro_batch_size = training_.micro_batch_size,
                                   .micro_batches = training_.micro_batches,
                                   .seed = training_.seed,
                                   .optimizer = training_.optimizer,
                                   .options = {numerics_, nullptr, {}}}) {}

  void compare(const Program& program, int step, const std::vector<Device*>& devices) {
    const bool updates = std::any_of(program.code.begin(), program.code.end(),
                                     [](const auto& in) { return in.kind == ActionKind::Opt; });
    updates ? serial_.step(*training_.data, step) : serial_.gradients(*training_.data, step);
    for (const bool from_the_front : {true, false}) {
      VerifyReport found =
          verify(views(program, devices, from_the_front), serial_.stage().parameters());
      found.numerics = numerics_;
      const bool is_worse = !worst_ || !(found.gradients.norm_rel <= worst_->gradients.norm_rel) ||
                            (worst_->parameters.bitwise && !found.parameters.bitwise);
      if (is_worse) worst_ = found;
    }
  }
  const std::optional<VerifyReport>& worst() const { return worst_; }

 private:
  /// Each stage once: of the lowest rank that holds it, or of the highest.
  static std::vector<cpu::ParameterView> views(const Program& program,
                                               const std::vector<Device*>& devices,
                                               bool from_the_front) {
    std::vector<const cpu::Stage*> stages(static_cast<std::size_t>(program.stages));
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::size_t r = from_the_front ? devices.size() - 1 - i : i;
      const auto ids = program.placement.stages_of(RankId(static_cast<std::int64_t>(r)));
      const auto held = devices[r]->download();
      for (std::size_t k = 0; k < ids.size(); ++k)
        stages[static_cast<std::size_t>(ids[k].value)] = held[k];
    }
    return parameters_of(stages);
  }

  const cpu::Training& training_;
  const Numerics numerics_;
  SerialRun serial_;
  std::optional<VerifyReport> worst_;
};

std::vector<RunResult::GpuMemory> memory_of(const std::vector<Device*>& devices) {
  std::vector<RunResult::GpuMemory> memory;
  for (Device* device : devices) {
    memory.push_back({device->memory_figures().peak_bytes + device->message_figures().peak_bytes,
                      device->weight_figures().live_bytes});
  }
  return memory;
}

}  // namespace

RunResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                      const CudaTraining& training, const RunOptions& options) {
  LocalTransport transport(program, costs);
  return run_on_cuda(cuda, program, costs, training, options, {transport, transport.times(), {}});
}

RunResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                      const CudaTraining& training, const RunOptions& options,
                      const Messenger& messenger) {
  cpu::require_fit(program, training.training);
  require_trainable(program, training);
  if (training.as_graph && options.steps < kLeastCapturedSteps)
    throw InputError(
        "--cuda-graph captures the second step, and this run has one; ask for more "
        "with --steps, or leave it out");
  PhaseLog* const phases = training.training.phases;
  if (phases != nullptr) phases->begin(Phase::InitComm);
  Partitions partitions(cuda);
  const auto sites = sites_of(cuda, program.ranks(), training.precision, partitions);
  std::vector<Device*> devices(static_cast<std::size_t>(program.ranks()));
  std::atomic<int> not_ready{program.ranks()};
  std::optional<StepGraph> graph;
  if (training.as_graph) graph.emplace(cuda, sites.front().gpu, program.ranks());
  const DeviceFactory make = [&](RankId rank, Clock&) {
    const auto r = static_cast<std::size_t>(rank.value);
    auto device =
        std::make_unique<Device>(cuda, sites[r], program, training, rank, messenger.transport,
                                 &messenger.times, graph ? &*graph : nullptr);
    devices[r] = device.get();
    if (messenger.attach) messenger.attach(rank, *device);
    const bool is_last = not_ready.fetch_sub(1) == 1;
    if (is_last && phases != nullptr) phases->begin(Phase::Steps);
    return device;
  };
  std::optional<Verifier> verifier;
  if (training.training.verified_steps > 0) verifier.emplace(training);
  std::vector<std::int64_t> enqueued_ns(devices.size(), 0);
  std::vector<RunResult::GpuMemory> memory;
  RunOptions watching = options;
  // The step that is captured shows the capture, and no step.
  if (graph) watching.warm_up_steps = std::max(watching.warm_up_steps, kLeastCapturedSteps);
  watching.on_step = [&](int step, const StepResult& result) {
    if (step < training.training.verified_steps) verifier->compare(program, step, devices);
    if (step + 1 == options.steps) memory = memory_of(devices);
    for (std::size_t r = 0; r < devices.size(); ++r) enqueued_ns[r] = devices[r]->enqueued_ns();
    if (options.on_step) options.on_step(step, result);
  };
  if (phases != nullptr) phases->begin(Phase::Initialize);
  RunResult result = run(program, costs, messenger.transport, make, watching);
  if (phases != nullptr) phases->finish();
  if (verifier) result.verify = verifier->worst();
  result.enqueued_ns = std::move(enqueued_ns);
  result.gpu_memory = std::move(memory);
  for (const auto& rank : result.gpu_memory)
    result.peak_bytes.push_back(rank.peak_activations + rank.weights);
  result.peak_weight_versions.assign(static_cast<std::size_t>(program.ranks()), 1);
  return result;
}

}  // namespace pipewright::exec::cuda
