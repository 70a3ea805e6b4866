#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "exec/base/packing.hpp"
#include "exec/devices/cpu/checkpointing.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/groups_of_ranks.hpp"
#include "exec/devices/cpu/kernels/blas.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/cpu/stage_views.hpp"
#include "exec/devices/cpu/training_fit.hpp"
#include "exec/devices/cpu/verify.hpp"
#include "exec/devices/metered/device.hpp"
#include "exec/runtime/peers.hpp"
#include "exec/transports/local/transport.hpp"

namespace pipewright::exec::cpu {
namespace {

/// By rank; null where the rank lives in another process.
using Devices = std::vector<const Device*>;

/// A serial run beside the real one, step by step.
class Verifier {
 public:
  Verifier(const Program& program, const Training& training)
      : training_(training),
        updates_(std::any_of(program.code.begin(), program.code.end(),
                             [](const auto& in) { return in.kind == ActionKind::Opt; })),
        serial_(*training.model, {.micro_batch_size = training.micro_batch_size,
                                  .micro_batches = training.micro_batches,
                                  .seed = training.seed,
                                  .optimizer = training.optimizer,
                                  .options = training.options}) {
    if (training.start != nullptr) restore(serial_.stage(), *training.start);
  }

  /// Keeps the worst of all steps and replicas.
  void compare(int step, StageViews& views) {
    const int at = training_.first_step() + step;
    updates_ ? serial_.step(*training_.data, at) : serial_.gradients(*training_.data, at);
    for (std::size_t n = 0; n < views.replicas(); ++n) {
      VerifyReport found = verify(views.replica(n), serial_.stage().parameters());
      found.numerics = training_.options.numerics;
      worst_ = worst_ ? worse_of(*worst_, found) : found;
    }
  }

  const std::optional<VerifyReport>& worst() const { return worst_; }

 private:
  const Training& training_;
  const bool updates_;
  SerialRun serial_;
  std::optional<VerifyReport> worst_;
};

/// A fact of each device, by rank.
template <class Fact>
std::vector<Fact> by_rank(const Devices& devices, Peers* peers, Fact (Device::*fact)() const) {
  Packer packer;
  for (const Device* device : devices) {
    if (device != nullptr) packer.put<Fact>((device->*fact)());
  }
  std::vector<Fact> facts;
  const PackedBytes own = packer.take();
  for (const PackedBytes& bytes :
       peers != nullptr ? peers->share(own) : std::vector<PackedBytes>{own}) {
    Unpacker unpacker(bytes);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Fact))
      facts.push_back(unpacker.get<Fact>());
  }
  return facts;
}

}  // namespace

CpuResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options) {
  const bool is_virtual = training.clock == local::ClockKind::Virtual;
  if (training.phases != nullptr) training.phases->begin(Phase::InitComm);
  local::LocalTransport transport(
      program,
      is_virtual ? local::paced_messages(program, costs) : local::real_messages(program, costs),
      training.clock);
  return run_on_cpu(program, costs, training, options, transport);
}

CpuResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options, Transport& transport,
                     const GroupOfProcesses& group_of) {
  require_fit(program, training);
  if (training.start != nullptr) require_resumable(*training.start, program, training);
  Peers* const peers = transport.peers();
  const bool reports = peers == nullptr || peers->process() == 0;
  Devices devices(static_cast<std::size_t>(program.ranks()));
  const bool is_virtual = training.clock == local::ClockKind::Virtual;
  if (training.options.numerics == Numerics::Fast)  // on the virtual clock ranks take turns
    require_blas_memory(is_virtual ? 1 : transport.local_ranks().size());
  std::mutex turn;
  auto groups = groups_of_ranks(program, division_of(program, training), transport, group_of);
  std::optional<Evaluation> evaluation;
  if (training.mode != RunMode::Train)
    evaluation.emplace(*training.model, training.mode, program.micro_batches, training.outputs);
  std::atomic<std::size_t> not_ready{transport.local_ranks().size()};
  const DeviceFactory make = [&](RankId rank, Clock& clock) -> std::unique_ptr<exec::Device> {
    auto device = std::make_unique<Device>(program, training, rank, &transport,
                                           std::move(groups[static_cast<std::size_t>(rank.value)]));
    if (evaluation) device->put_outcomes_into(*evaluation);
    devices[static_cast<std::size_t>(rank.value)] = device.get();
    const bool is_last = not_ready.fetch_sub(1) == 1;
    if (is_last && training.phases != nullptr) training.phases->begin(Phase::Steps);
    if (!is_virtual) return device;
    return std::make_unique<local::MeteredDevice>(std::move(device), rank, clock, turn);
  };
  std::optional<Verifier> verifier;
  if (training.verified_steps > 0 && reports) verifier.emplace(program, training);
  std::optional<CheckpointSaver> saver;
  if (training.save) saver.emplace(program, training, options.steps, reports);
  CpuResult result;
  RunOptions watching = options;
  watching.first_step = training.first_step();
  watching.on_step = [&](int step, const StepResult& ended) {
    if (step < training.verified_steps) {
      StageViews views(program, stages_of_ranks(devices), peers);
      if (reports) verifier->compare(step, views);
    }
    if (evaluation) evaluation->end_step(peers);
    if (saver) saver->after_step(step, trained_ranks(program, devices), peers);
    if (step + 1 == options.steps) {
      result.peak_weight_versions = by_rank(devices, peers, &Device::peak_versions);
      result.peak_bytes = by_rank(devices, peers, &Device::peak_bytes);
    }
    if (options.on_step) options.on_step(step, ended);
  };
  if (training.phases != nullptr) training.phases->begin(Phase::Initialize);
  static_cast<RunResult&>(result) = run(program, costs, transport, make, watching);
  if (training.phases != nullptr) training.phases->finish();
  if (evaluation) result.evaluation = evaluation->report();
  if (verifier) result.verify = verifier->worst();
  return result;
}

}  // namespace pipewright::exec::cpu
