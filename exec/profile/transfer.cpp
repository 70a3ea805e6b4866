#include "exec/profile/transfer.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/program/lower.hpp"
#include "exec/runtime/runtime.hpp"
#include "exec/transports/local/transport.hpp"

namespace pipewright::exec {
namespace {

constexpr int kHops = 64;
constexpr std::size_t kSmallFloats = 16, kLargeFloats = 1 << 18;

/// F does nothing but copy a message of the given size, in and out, as a stage at a cut does.
class CopyingDevice final : public Device {
 public:
  explicit CopyingDevice(std::size_t floats) : stage_(floats) {}

  void begin_step(int) override {}
  void compute(InstructionId) override {
    if (!received_.empty()) std::copy(received_.begin(), received_.end(), stage_.begin());
  }
  PayloadPtr give(InstructionId) override {
    std::vector<float> sent = std::move(received_);  // its memory is used again
    sent.assign(stage_.begin(), stage_.end());
    received_.clear();
    return std::make_unique<HostPayload>(std::move(sent));
  }
  void accept(InstructionId, PayloadPtr payload) override {
    received_ = std::move(static_cast<HostPayload&>(*payload).values);
  }
  void end_step() override {}

 private:
  std::vector<float> stage_, received_;
};

/// One micro-batch forward through `stages` stages in turn on `ranks` ranks.
Program chain(int ranks, int stages) {
  Order order;
  order.placement = Placement::loop(ranks, stages / ranks);
  order.micro_batches = 1;
  order.ranks.resize(static_cast<std::size_t>(ranks));
  for (int s = 0; s < stages; ++s) {
    order.ranks[static_cast<std::size_t>(s % ranks)].push_back(
        {.action = {.kind = ActionKind::F, .stage = StageId(s), .micro_batch = {}}, .partner = {}});
  }
  return lower(order, CommPolicy{});
}

/// Median time of a step of the chain.
std::int64_t median_step_ns(const Program& program, std::size_t floats, int repeats) {
  const CostTable costs = CostTable::uniform(program.stages, {});
  local::LocalTransport transport(program, local::real_messages(program, costs));
  const DeviceFactory make = [&](RankId, Clock&) {
    return std::make_unique<CopyingDevice>(floats);
  };
  const RunResult result = run(program, costs, transport, make, {.steps = repeats + 1});
  return result.timeline.makespan_ns;
}

}  // namespace

TransferTimes measure_transfers(int repeats) {
  const Program program = chain(2, kHops + 2);
  const double hops = kHops + 1;
  const double small = static_cast<double>(median_step_ns(program, kSmallFloats, repeats)) / hops;
  const double large = static_cast<double>(median_step_ns(program, kLargeFloats, repeats)) / hops;
  const double more_bytes = static_cast<double>((kLargeFloats - kSmallFloats) * sizeof(float));
  TransferTimes times;
  times.latency = Nanoseconds(static_cast<std::int64_t>(small));
  // On a machine so noisy that the large message was the faster one, all of its time counts as
  // moving.
  const double moving = large > small ? large - small : large;
  times.bytes_per_second = more_bytes / std::max(moving, 1.0) * 1e9;
  return times;
}

Nanoseconds measure_action_overhead(int repeats) {
  constexpr int kActions = 1000;
  const Program program = chain(1, kActions);
  return Nanoseconds(median_step_ns(program, 1, repeats) / kActions);
}

}  // namespace pipewright::exec
