// A device around another one, for the virtual clock: what the inner device computes is really
// computed, and then takes as long on the transport's clock as this thread used of a core. So a
// rank that shares its core with others, or that the machine put aside for a while, is charged for
// its own work alone, and eight ranks on two cores show the timeline of eight devices.
//
// The virtual time moves only when every rank waits. A computation under way holds it, for its end
// is known only when it is over; so ranks could compute at once only where they begin at the same
// moment. They take turns even there: CPU time counts the caches that another rank has emptied, and
// next to nothing would be gained. What the runtime itself does between computations takes no
// virtual time. Transfers take what the transport says (paced_messages()).
//
// Like every Device it belongs to its rank's thread. Its inner device may not wait for another rank
// inside compute(): under this clock that rank may be asleep.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "exec/runtime/device.hpp"

namespace pipewright::exec::local {

class MeteredDevice final : public Device {
 public:
  /// `clock` must outlive it, and so must `turn`: one for all ranks, held while one computes.
  MeteredDevice(std::unique_ptr<Device> inner, RankId rank, Clock& clock, std::mutex& turn);

  void begin_step(int step) override { inner_->begin_step(step); }
  /// Throws what the inner device throws, and Stopped.
  void compute(InstructionId id) override;
  PayloadPtr give(InstructionId send) override { return inner_->give(send); }
  void accept(InstructionId recv, PayloadPtr payload) override {
    inner_->accept(recv, std::move(payload));
  }
  void end_step() override { inner_->end_step(); }
  std::optional<double> loss() const override { return inner_->loss(); }
  std::string not_finite() const override { return inner_->not_finite(); }

 private:
  const std::unique_ptr<Device> inner_;
  const RankId rank_;
  Clock& clock_;
  std::mutex& turn_;
};

}  // namespace pipewright::exec::local
