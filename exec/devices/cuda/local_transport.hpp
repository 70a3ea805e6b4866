// Ranks that are threads of this process and compute on GPUs: exec/transports/local/transport.hpp,
// whose messages are handed over when the host has enqueued them, with the times at which the GPUs
// moved them.
#pragma once

#include <algorithm>

#include "exec/devices/cuda/timeline.hpp"
#include "exec/transports/local/transport.hpp"

namespace pipewright::exec::cuda {

class LocalTransport final : public Transport {
 public:
  /// The Program must outlive it.
  LocalTransport(const Program& program, const CostTable& costs)
      : inner_(program, local::real_messages(program, costs)), times_(program.code.size()) {}

  /// For the devices of this process.
  TransferSpans& times() { return times_; }

  std::int64_t now() const override { return inner_.now(); }
  void sleep_until(RankId rank, std::int64_t deadline) override {
    inner_.sleep_until(rank, deadline);
  }
  std::vector<RankId> local_ranks() const override { return inner_.local_ranks(); }
  void meet(RankId rank, const std::function<void()>& between) override {
    inner_.meet(rank, between);
  }
  void issue(RankId rank, InstructionId end, PayloadPtr data) override {
    inner_.issue(rank, end, std::move(data));
  }
  void provide(RankId rank, InstructionId send, PayloadPtr data) override {
    inner_.provide(rank, send, std::move(data));
  }
  void contribute(RankId rank, InstructionId member, PartPtr part) override {
    inner_.contribute(rank, member, std::move(part));
  }
  std::vector<PartPtr> gathered(RankId rank, InstructionId member) override {
    return inner_.gathered(rank, member);
  }
  void wait(RankId rank, InstructionId id) override { inner_.wait(rank, id); }
  PayloadPtr take(RankId rank, InstructionId recv) override { return inner_.take(rank, recv); }
  void stop() noexcept override { inner_.stop(); }
  bool stands_still_within(std::int64_t timeout_ns) override {
    return inner_.stands_still_within(timeout_ns);
  }
  void end_watch() noexcept override { inner_.end_watch(); }
  bool awaits_time(RankId rank) const override { return inner_.awaits_time(rank); }
  std::uint64_t ended_count() const override { return inner_.ended_count(); }

  /// What the host knows, and of a step that is over what the GPUs know better.
  void report(Timeline& timeline, Progress& progress) const override {
    inner_.report(timeline, progress);
    // A step that is not over has no times of GPUs, and those of the step before mean nothing.
    const bool is_over = std::all_of(progress.ended.begin(), progress.ended.end(),
                                     [](std::uint8_t ended) { return ended != 0; });
    if (is_over) times_.write(timeline);
  }

 private:
  local::LocalTransport inner_;
  TransferSpans times_;
};

}  // namespace pipewright::exec::cuda
