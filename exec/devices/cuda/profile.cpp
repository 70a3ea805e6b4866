#include "exec/devices/cuda/profile.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.hpp"
#include "core/costs/distribution.hpp"
#include "exec/devices/cuda/run.hpp"
#include "exec/devices/cuda/stage.hpp"

namespace pipewright::exec::cuda {
namespace {

constexpr int kRepeats = 20;
constexpr std::size_t kSmallMessage = 4, kLargeMessage = std::size_t{32} << 20;

std::int64_t median_of(std::vector<std::int64_t> samples) {
  return distribution_of(std::move(samples)).median().value;
}

/// Marks on a queue and the times between them.
class Meter {
 public:
  Meter(const pipewright_cuda& cuda, const QueueSite& site) : cuda_(cuda), queue_(cuda, site) {}
  ~Meter() { queue_.drain(); }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  Queue& queue() { return queue_; }
  Event mark(void* stream) { return queue_.mark(stream); }
  void finish(const Event& event) const { queue_.finish(event, {}); }
  std::int64_t between(const Event& from, const Event& to) const {
    float ms = 0;
    require(cuda_, cuda_.elapsed_ms(from.get(), to.get(), &ms));
    return std::llround(static_cast<double>(ms) * 1e6);
  }

 private:
  const pipewright_cuda& cuda_;
  Queue queue_;
};

/// What the last stage needs besides its input.
MicroBatch answers_for(const Model& model, int rows, int width) {
  MicroBatch batch;
  const auto count = static_cast<std::size_t>(rows);
  if (model.loss == LossKind::SoftmaxCrossEntropy) {
    batch.labels.assign(count, 0);
  } else {
    batch.targets.assign(count * static_cast<std::size_t>(width), 0.25F);
  }
  return batch;
}

LossTimes loss_times(const pipewright_cuda& cuda, const QueueSite& site, const Model& model,
                     int micro_batch_size) {
  Meter meter(cuda, site);
  const auto layers = static_cast<int>(model.layers.size());
  Stage stage(meter.queue(), {.model = &model,
                              .first_layer = layers,
                              .end_layer = layers,
                              .micro_batch_size = micro_batch_size,
                              .optimizer = {},
                              .recompute = {}});
  const MicroBatch batch =
      answers_for(model, micro_batch_size * model.sequence, width_in_front_of(model, layers));
  std::vector<std::int64_t> forward, backward;
  for (int k = 0; k < kRepeats; ++k) {
    stage.set_batch(0, batch);
    Buffer input = meter.queue().memory().take(stage.input_floats() * meter.queue().number_bytes());
    meter.queue().clear(input.at(), input.bytes());
    const Event begin = meter.mark(meter.queue().computing());
    stage.forward(0, std::move(input));
    const Event middle = meter.mark(meter.queue().computing());
    stage.backward_input(0, {});
    const Event end = meter.mark(meter.queue().computing());
    stage.backward_weight(0);
    meter.finish(meter.queue().record(meter.queue().computing()));
    forward.push_back(meter.between(begin, middle));
    backward.push_back(meter.between(middle, end));
  }
  return {median_of(std::move(forward)), median_of(std::move(backward))};
}

std::int64_t copy_ns(Meter& meter, std::size_t bytes) {
  Queue& queue = meter.queue();
  const Buffer from = queue.memory().take(bytes), to = queue.memory().take(bytes);
  std::vector<std::int64_t> samples;
  for (int k = 0; k < kRepeats; ++k) {
    const Event begin = meter.mark(queue.computing());
    queue.copy(to.at(), from.at(), bytes);
    const Event end = meter.mark(queue.computing());
    meter.finish(end);
    samples.push_back(meter.between(begin, end));
  }
  return std::max<std::int64_t>(1, median_of(std::move(samples)));
}

TransferTimes transfer_times(const pipewright_cuda& cuda, const QueueSite& site) {
  Meter meter(cuda, site);
  const std::int64_t latency = copy_ns(meter, kSmallMessage);
  const std::int64_t large = copy_ns(meter, kLargeMessage);
  const std::int64_t moving = std::max<std::int64_t>(1, large - latency);
  return {Nanoseconds(latency),
          static_cast<double>(kLargeMessage) * 1e9 / static_cast<double>(moving)};
}

/// From the end of one computation to the start of the next, both enqueued ahead: two marks.
Nanoseconds gap(const pipewright_cuda& cuda, const QueueSite& site) {
  Meter meter(cuda, site);
  std::vector<std::int64_t> samples;
  for (int k = 0; k < kRepeats; ++k) {
    const Event end = meter.mark(meter.queue().computing());
    const Event start = meter.mark(meter.queue().computing());
    meter.finish(start);
    samples.push_back(meter.between(end, start));
  }
  return Nanoseconds(median_of(std::move(samples)));
}

}  // namespace

ProfileBackend profile_backend(const pipewright_cuda& cuda, Precision precision, int ranks) {
  ProfileBackend backend;
  backend.train = [&cuda, precision](const Program& program, const cpu::Training& training,
                                     const RunOptions& options, ComputationTimes& times) {
    CudaTraining how{training, precision, {}, {}};
    how.on_computation = [&times](InstructionId id, std::int64_t ns) { times[id].push_back(ns); };
    return run_on_cuda(cuda, program, CostTable::uniform(program.stages, {}), how, options);
  };
  backend.loss = [&cuda, precision, ranks](const Model& model, int micro_batch_size) {
    Partitions partitions(cuda);
    return loss_times(cuda, sites_of(cuda, ranks, precision, partitions).back(), model,
                      micro_batch_size);
  };
  backend.transfers = [&cuda, precision, ranks] {
    Partitions partitions(cuda);
    return transfer_times(cuda, sites_of(cuda, ranks, precision, partitions).front());
  };
  backend.action_overhead = [&cuda, precision, ranks] {
    Partitions partitions(cuda);
    return gap(cuda, sites_of(cuda, ranks, precision, partitions).front());
  };
  return backend;
}

}  // namespace pipewright::exec::cuda
