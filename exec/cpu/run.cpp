#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "exec/cpu/device.hpp"
#include "exec/cpu/stage_views.hpp"
#include "exec/cpu/training_fit.hpp"
#include "exec/local/metered_device.hpp"
#include "exec/local/transport.hpp"
#include "exec/packing.hpp"
#include "exec/peers.hpp"
#include "exec/serial.hpp"
#include "exec/verify.hpp"

namespace pipewright::exec::cpu {
namespace {

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
                                  .options = training.options}) {}

  /// Keeps the worst of all steps and replicas.
  void compare(int step, const StageViews& views) {
    updates_ ? serial_.step(*training_.data, step) : serial_.gradients(*training_.data, step);
    for (std::size_t n = 0; n < views.replicas(); ++n) {
      const VerifyReport found = verify(views.replica(n), serial_.stage().parameters());
      const double known = worst_ ? worst_->gradients.norm_rel : -1;
      const bool is_worse =
          std::isnan(found.gradients.norm_rel) || found.gradients.norm_rel > known;
      if (!is_worse && (found.parameters.bitwise || !worst_->parameters.bitwise)) continue;
      worst_ = found;
      worst_->numerics = training_.options.numerics;
    }
  }

  const std::optional<VerifyReport>& worst() const { return worst_; }

 private:
  const Training& training_;
  const bool updates_;
  SerialRun serial_;
  std::optional<VerifyReport> worst_;
};

/// By rank: the most versions of a stage's weights that lived at once.
std::vector<int> peak_versions_of(const Devices& devices, Peers* peers) {
  Packer packer;
  for (const Device* device : devices) {
    if (device != nullptr) packer.put<int>(device->peak_versions());
  }
  std::vector<int> peaks;
  const Bytes own = packer.take();
  for (const Bytes& bytes : peers != nullptr ? peers->share(own) : std::vector<Bytes>{own}) {
    Unpacker unpacker(bytes);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(int)) {
      peaks.push_back(unpacker.get<int>());
    }
  }
  return peaks;
}

}  // namespace

RunResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options) {
  const bool is_virtual = training.clock == local::ClockKind::Virtual;
  local::LocalTransport transport(
      program,
      is_virtual ? local::paced_messages(program, costs) : local::real_messages(program, costs),
      training.clock);
  return run_on_cpu(program, costs, training, options, transport);
}

RunResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options, Transport& transport) {
  require_fit(program, training);
  Peers* const peers = transport.peers();
  const bool speaks = peers == nullptr || peers->process() == 0;
  Devices devices(static_cast<std::size_t>(program.ranks()));
  const bool is_virtual = training.clock == local::ClockKind::Virtual;
  std::mutex turn;
  const DeviceFactory make = [&](RankId rank, Clock& clock) -> std::unique_ptr<exec::Device> {
    auto device = std::make_unique<Device>(program, training, rank, &transport);
    devices[static_cast<std::size_t>(rank.value)] = device.get();
    if (!is_virtual) return device;
    return std::make_unique<local::MeteredDevice>(std::move(device), rank, clock, turn);
  };
  std::optional<Verifier> verifier;
  if (training.verified_steps > 0 && speaks) verifier.emplace(program, training);
  std::vector<int> peak_versions;
  RunOptions watching = options;
  watching.on_step = [&](int step, const StepResult& result) {
    if (step < training.verified_steps) {
      const StageViews views(program, devices, peers);
      if (speaks) verifier->compare(step, views);
    }
    if (step + 1 == options.steps) peak_versions = peak_versions_of(devices, peers);
    if (options.on_step) options.on_step(step, result);
  };
  RunResult result = run(program, costs, transport, make, watching);
  if (verifier) result.verify = verifier->worst();
  result.peak_weight_versions = std::move(peak_versions);
  return result;
}

}  // namespace pipewright::exec::cpu
