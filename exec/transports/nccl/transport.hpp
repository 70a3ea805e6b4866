// Ranks that are threads of this process, or processes of a job, each on a GPU of its own, whose
// messages NCCL moves from GPU to GPU, and whose collectives it makes, but for those that go by way
// of the hosts (exec/transports/nccl/by_hosts.hpp). These, and all else that ranks do together
// (meeting, time), are done by the transport that this one wraps:
// exec/transports/local's, or exec/transports/process's.
//
// The host enqueues and never waits for a message: wait() returns when NCCL has the call, and the
// payload's event orders the streams. So nothing here knows that a run is stuck; a Program that
// would be is not given to it (exec/transports/nccl/read_back.hpp and check), and the watchdog's
// patience ends what the network holds up: stop() aborts the communicators of all ranks.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "exec/devices/cuda/device.hpp"
#include "exec/devices/cuda/timeline.hpp"
#include "exec/transports/local/transport.hpp"
#include "exec/transports/nccl/rank_link.hpp"

namespace pipewright::exec::nccl {

class NcclTransport final : public Transport {
 public:
  /// All ranks are threads of this process. The Program and the tables must outlive it. Throws
  /// InputError as communicators_of() does.
  NcclTransport(const pipewright_nccl& nccl, const Program& program, const CostTable& costs);
  /// The ranks live where `inner` says, which must outlive it. Where they are several processes all
  /// of them make it alike, and it waits for them: they share the communicators' ids.
  NcclTransport(const pipewright_nccl& nccl, const Program& program, const CostTable& costs,
                Transport& inner);
  ~NcclTransport() override;

  /// By the rank's thread, before its first step: joins its communicators. Waits for all ranks.
  void attach(RankId rank, cuda::Device& device);
  cuda::TransferSpans& times() { return times_; }

  Peers* peers() override { return inner_.peers(); }
  std::int64_t now() const override { return inner_.now(); }
  void sleep_until(RankId rank, std::int64_t deadline) override;
  std::vector<RankId> local_ranks() const override { return inner_.local_ranks(); }
  void meet(RankId rank, const std::function<void()>& between) override;
  void issue(RankId rank, InstructionId end, PayloadPtr data) override;
  void provide(RankId rank, InstructionId send, PayloadPtr data) override;
  void contribute(RankId rank, InstructionId member, PartPtr part) override;
  std::vector<PartPtr> gathered(RankId rank, InstructionId member) override;
  void wait(RankId rank, InstructionId id) override;
  PayloadPtr take(RankId rank, InstructionId recv) override;
  bool receives_when_issued() const override { return true; }
  void stop() noexcept override;
  bool stands_still_within(std::int64_t timeout_ns) override {
    return inner_.stands_still_within(timeout_ns);
  }
  void end_watch() noexcept override { inner_.end_watch(); }
  std::uint64_t ended_count() const override;
  void report(Timeline& timeline, Progress& progress) const override;

 private:
  NcclTransport(const pipewright_nccl& nccl, const Program& program, const CostTable& costs,
                std::unique_ptr<Transport> own, Transport* inner);
  /// Served by NCCL; a sum from when its part was brought.
  bool is_nccls(RankId rank, InstructionId id) const {
    return is_transfer(program_.code[id].kind) ||
           (program_.code[id].in_collective() &&
            links_[static_cast<std::size_t>(rank.value)]->is_sum(id));
  }
  RankLink& link(RankId rank) { return *links_[static_cast<std::size_t>(rank.value)]; }
  void throw_if_stopped() const {
    if (stopped_.load()) throw Stopped{};
  }

  const Program& program_;
  const CommunicatorPlan plan_;
  const std::unique_ptr<Transport> own_;  // null: inner_ is another's
  Transport& inner_;
  cuda::TransferSpans times_;
  std::vector<UniqueId> ids_;
  std::atomic<bool> stopped_{false};
  std::vector<std::unique_ptr<RankLink>> links_;  // by rank; null where it lives elsewhere
};

}  // namespace pipewright::exec::nccl
