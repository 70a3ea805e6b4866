// How the replicas of a stage sum their gradients (docs/semantics.md §3.2), as one rank sees it:
// which part it has to hand to the transport when, and what the parts of the others are. The parts
// themselves travel through the Transport. Belongs to the Device, and to its thread.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/collectives.hpp"
#include "exec/cpu/gradient_part.hpp"
#include "exec/transport.hpp"

namespace pipewright::exec::cpu {

/// The part on its way. The packed form is its bytes, four in each float.
class GradientMessage final : public Part {
 public:
  explicit GradientMessage(GradientPart what) : part(std::move(what)) {}
  HostPayload pack() const override;

  GradientPart part;
};
/// Throws RunError if it is none of a GradientMessage.
GradientPart unpacked(const HostPayload& payload);

class GradientExchange {
 public:
  /// The Program must outlive it.
  GradientExchange(const Program& program, RankId rank);

  /// A part that the rank has to hand in: its REDUCE_GRAD, and the stage.
  struct Duty {
    InstructionId reduction = kNoInstruction;
    StageId stage;
  };
  /// Duties once the computation has ended; before the first one of the step.
  std::span<const std::pair<InstructionId, Duty>> due_after(InstructionId computation) const;
  const std::vector<Duty>& due_at_start() const { return at_start_; }
  /// Whether other ranks take part in the REDUCE_GRAD.
  bool is_shared(InstructionId reduction) const;

 private:
  std::vector<std::pair<InstructionId, Duty>> after_;  // by computation, sorted
  std::vector<Duty> at_start_;
  std::vector<InstructionId> reductions_;  // sorted
};

/// The parts of all members by rank; those that came from other processes are unpacked into
/// `arrived`, which has to outlive the result.
std::vector<const GradientPart*> parts_of(const std::vector<PartPtr>& messages,
                                          std::vector<GradientPart>& arrived);

}  // namespace pipewright::exec::cpu
