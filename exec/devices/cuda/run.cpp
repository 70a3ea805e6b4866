#include "exec/devices/cuda/run.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/packing.hpp"
#include "exec/devices/cpu/checkpointing.hpp"
#include "exec/devices/cpu/groups_of_ranks.hpp"
#include "exec/devices/cpu/training_fit.hpp"
#include "exec/devices/cuda/activities.hpp"
#include "exec/devices/cuda/local_transport.hpp"
#include "exec/devices/cuda/run_verifier.hpp"
#include "exec/runtime/peers.hpp"

namespace pipewright::exec::cuda {
namespace {

using Devices = std::vector<Device*>;  // by rank; null where it lives in another process

/// What each process brings, by process.
std::vector<PackedBytes> shared(Peers* peers, PackedBytes own) {
  if (peers != nullptr) return peers->share(std::move(own));
  return {std::move(own)};
}

/// What each rank says of itself, by rank.
template <class Fact>
std::vector<Fact> by_rank(const Devices& devices, Peers* peers,
                          const std::function<Fact(Device&)>& fact) {
  Packer packer;
  for (Device* device : devices) {
    if (device != nullptr) packer.put<Fact>(fact(*device));
  }
  std::vector<Fact> facts;
  for (const PackedBytes& bytes : shared(peers, packer.take())) {
    for (Unpacker unpacker(bytes); !unpacker.empty();) facts.push_back(unpacker.get<Fact>());
  }
  return facts;
}

CudaResult::Memory memory_of_device(Device& device) {
  const PoolFigures activations = device.memory_figures(), messages = device.message_figures(),
                    weights = device.weight_figures();
  return {
      activations.peak_bytes + messages.peak_bytes, weights.live_bytes - device.copy_bytes(),
      activations.peak_reserved_bytes + messages.peak_reserved_bytes + weights.peak_reserved_bytes,
      device.workspace_bytes(), device.transport_bytes()};
}

std::vector<QueueSite> sites_for(const pipewright_cuda& cuda, const Program& program,
                                 const CudaTraining& training, const Messenger& messenger,
                                 Partitions& partitions) {
  if (!messenger.gpu) return sites_of(cuda, program.ranks(), training.precision, partitions);
  return std::vector<QueueSite>(static_cast<std::size_t>(program.ranks()),
                                {*messenger.gpu, nullptr, training.precision});
}

/// Who looks at the ranks after a step, while they stand still.
class Observers {
 public:
  Observers(const Program& program, const CudaTraining& training, int steps, Peers* peers)
      : program_(program), verified_steps_(training.training.verified_steps), peers_(peers) {
    const cpu::Training& of = training.training;
    if (verified_steps_ > 0) verifier_.emplace(training);
    if (of.save) saver_.emplace(program, of, steps, peers == nullptr || peers->process() == 0);
    if (of.mode != RunMode::Train)
      evaluation_.emplace(*of.model, of.mode, program.micro_batches, of.outputs);
  }

  void tell(Device& device) {
    if (saver_) device.save_after([this](int step) { return saver_->is_due(step); });
    if (evaluation_) device.put_outcomes_into(*evaluation_);
  }
  void look(int step, const Devices& devices) {
    if (step < verified_steps_) verifier_->compare(program_, step, devices, peers_);
    if (evaluation_) evaluation_->end_step(peers_);
    if (saver_ && saver_->is_due(step))
      saver_->after_step(step, cpu::trained_ranks(program_, devices), peers_);
  }
  void report(TrainingResult& result) const {
    if (verifier_) result.verify = verifier_->worst();
    if (evaluation_) result.evaluation = evaluation_->report();
  }

 private:
  const Program& program_;
  const int verified_steps_;
  Peers* const peers_;
  std::optional<RunVerifier> verifier_;
  std::optional<cpu::CheckpointSaver> saver_;
  std::optional<Evaluation> evaluation_;
};

/// All ranks' of the step that has just ended.
GpuWorkLog work_of_step(Activities& activities, const Devices& devices, Peers* peers) {
  const auto own = std::find_if(devices.begin(), devices.end(),
                                [](const Device* device) { return device != nullptr; });
  GpuWorkLog log;
  for (const PackedBytes& bytes :
       shared(peers, packed(activities.take((*own)->timeline().to_step_ns()))))
    add_packed(bytes, log);
  return log;
}

void require_possible(const Program& program, const CudaTraining& training, int steps,
                      bool over_nccl) {
  cpu::require_fit(program, training.training);
  require_trainable(program, training, over_nccl);
  if (training.as_graph && steps < kLeastCapturedSteps)
    throw InputError(
        "--cuda-graph captures the second step, and this run has one; ask for more "
        "with --steps, or leave it out");
  if (training.training.start != nullptr)
    cpu::require_resumable(*training.training.start, program, training.training);
}

}  // namespace

CudaResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                       const CudaTraining& training, const RunOptions& options) {
  LocalTransport transport(program, costs);
  return run_on_cuda(cuda, program, costs, training, options, {transport, transport.times(), {}});
}

CudaResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                       const CudaTraining& training, const RunOptions& options,
                       const Messenger& messenger) {
  const bool over_nccl = static_cast<bool>(messenger.attach);
  require_possible(program, training, options.steps, over_nccl);
  PhaseLog* const phases = training.training.phases;
  if (phases != nullptr) phases->begin(Phase::InitComm);
  std::optional<Activities> activities;
  if (training.records_work) activities.emplace(cuda, program);
  Partitions partitions(cuda);
  const auto sites = sites_for(cuda, program, training, messenger, partitions);
  Peers* const peers = messenger.transport.peers();
  Devices devices(static_cast<std::size_t>(program.ranks()));
  std::atomic<std::size_t> not_ready{messenger.transport.local_ranks().size()};
  // One of all ranks, or each rank's own.
  std::vector<std::unique_ptr<StepGraph>> graphs(over_nccl ? devices.size() : 1);
  if (training.as_graph && !over_nccl)
    graphs.front() = std::make_unique<StepGraph>(cuda, sites.front().gpu, program.ranks());
  Observers observers(program, training, options.steps, peers);
  auto groups = cpu::groups_of_ranks(program, cpu::division_of(program, training.training),
                                     messenger.transport, messenger.group_of);
  const DeviceFactory make = [&](RankId rank, Clock&) {
    const auto r = static_cast<std::size_t>(rank.value);
    std::unique_ptr<StepGraph>& graph = graphs[over_nccl ? r : 0];
    if (training.as_graph && over_nccl) graph = std::make_unique<StepGraph>(cuda, sites[r].gpu, 1);
    auto device =
        std::make_unique<Device>(cuda, sites[r], program, training, rank, messenger.transport,
                                 &messenger.times, graph.get(), std::move(groups[r]));
    devices[r] = device.get();
    observers.tell(*device);
    if (messenger.attach) {
      device->rehearse();
      messenger.transport.meet(rank, [] {});
      messenger.attach(rank, *device);
    }
    const bool is_last = not_ready.fetch_sub(1) == 1;
    if (is_last && phases != nullptr) phases->begin(Phase::Steps);
    return device;
  };
  CudaResult result;
  RunOptions watching = options;
  watching.first_step = training.training.first_step();
  // The times of the captured step are those of the capture, so it counts as warm-up.
  if (training.as_graph)
    watching.warm_up_steps = std::max(watching.warm_up_steps, kLeastCapturedSteps);
  if (activities) watching.median_timeline = false;
  watching.on_step = [&](int step, const StepResult& ended) {
    if (activities && step + 1 < options.steps) activities->discard();
    if (activities && step + 1 == options.steps)
      result.work = work_of_step(*activities, devices, peers);
    observers.look(step, devices);
    if (step + 1 == options.steps) {
      result.memory = by_rank<CudaResult::Memory>(devices, peers, memory_of_device);
      result.enqueued_ns = by_rank<std::int64_t>(
          devices, peers, [](Device& device) { return device.enqueued_ns(); });
    }
    if (options.on_step) options.on_step(step, ended);
  };
  if (phases != nullptr) phases->begin(Phase::Initialize);
  static_cast<RunResult&>(result) = run(program, costs, messenger.transport, make, watching);
  if (phases != nullptr) phases->finish();
  observers.report(result);
  if (result.work) fit_to_step(*result.work, program, result.timeline);
  for (const CudaResult::Memory& rank : result.memory) {
    result.peak_bytes.push_back(rank.reserved + rank.workspace + rank.transport);
    result.unplanned_bytes.push_back(result.peak_bytes.back() - rank.peak_activations -
                                     rank.weights);
  }
  return result;
}

}  // namespace pipewright::exec::cuda
