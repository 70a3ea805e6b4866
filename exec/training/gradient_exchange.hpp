// What the replicas of a stage bring to the sum of their gradients (docs/semantics.md §3.2), and
// its form on the way. The parts travel through the Transport.
#pragma once

#include <utility>
#include <vector>

#include "exec/runtime/transport.hpp"
#include "exec/training/gradient_part.hpp"

namespace pipewright::exec {

/// The part on its way. The packed form is its bytes, four in each float.
class GradientMessage final : public Part {
 public:
  explicit GradientMessage(GradientPart what) : part(std::move(what)) {}
  HostPayload pack() const override;

  GradientPart part;
};
/// Throws RunError if it is not that of a GradientMessage.
GradientPart unpacked(const HostPayload& payload);

/// The parts of all members by rank; those that came from other processes are unpacked into
/// `arrived`, which has to outlive the result.
std::vector<const GradientPart*> parts_of(const std::vector<PartPtr>& messages,
                                          std::vector<GradientPart>& arrived);

}  // namespace pipewright::exec
