// What computes: one Device a rank. The runtime says what to do in which order; a device decides
// nothing about order and knows nothing of other ranks.
//
// A Device belongs to its rank's thread: it is made, used and destroyed there. compute() may return
// before the work is done (a CUDA stream); then give() attaches the event after the work that
// made the payload, accept() makes the compute stream wait for the payload's event, end_step()
// waits for everything, and timestamps() fills in the times that were measured on the device.
// Errors are thrown; the runtime stops all ranks and reports the rank and the instruction.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

class Device {
 public:
  virtual ~Device() = default;

  /// `step` counts from 0. Nothing is under way.
  virtual void begin_step(int step) = 0;
  /// Performs or enqueues a computation of this rank, both actions if it is a pair.
  virtual void compute(InstructionId id) = 0;
  /// Hands out what the SEND carries; its producer has been computed. Never null. Of a member of a
  /// collective whose inputs have ended: contributes its part to the transport and returns null.
  virtual PayloadPtr give(InstructionId send) = 0;
  /// Takes what the RECV brought. Of a member of a collective, with null: it has ended, and the
  /// transport has gathered all parts.
  virtual void accept(InstructionId recv, PayloadPtr payload) = 0;
  /// Returns when all work of the step is done.
  virtual void end_step() = 0;

  /// Around what the rank's host does to put an instruction's work on the device and on its way,
  /// once a step, never one in another: compute(); give() and the transport's issue() or provide();
  /// of a RECV what Transport::receives_when_issued() says. For what shows the host's work.
  virtual void begin_instruction(InstructionId id) { static_cast<void>(id); }
  virtual void end_instruction() noexcept {}

  /// This rank's part of the step's loss; nullopt on ranks that do not compute it.
  virtual std::optional<double> loss() const { return std::nullopt; }
  /// After end_step(): what is not finite among the numbers that this rank has after the step, as a
  /// clause (`the gradient of "head/weight" is not a finite number`); empty if a training can go on
  /// from there.
  virtual std::string not_finite() const { return {}; }
  /// Overwrites the host's times of this rank's computations by better ones, after end_step().
  virtual void timestamps(Timeline& timeline) const { static_cast<void>(timeline); }
};

/// Makes the device of a rank, in that rank's thread. Called from several threads at once.
using DeviceFactory = std::function<std::unique_ptr<Device>(RankId rank, Clock& clock)>;

}  // namespace pipewright::exec
