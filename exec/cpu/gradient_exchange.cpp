#include "exec/cpu/gradient_exchange.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"

namespace pipewright::exec::cpu {
namespace {

constexpr auto kByInstruction = [](const auto& a, const auto& b) { return a.first < b.first; };

}  // namespace

// --- On the way ---

HostPayload GradientMessage::pack() const {
  const std::vector<std::byte> bytes = to_bytes(part);
  HostPayload payload(std::vector<float>(bytes.size() / sizeof(float)));
  PIPEWRIGHT_ASSERT(payload.size() == bytes.size(), "a part's bytes do not fill floats");
  std::memcpy(payload.data(), bytes.data(), bytes.size());
  return payload;
}

GradientPart unpacked(const HostPayload& payload) {
  return gradient_part_of(std::as_bytes(std::span(payload.values)));
}

std::vector<const GradientPart*> parts_of(const std::vector<PartPtr>& messages,
                                          std::vector<GradientPart>& arrived) {
  arrived.reserve(messages.size());
  std::vector<const GradientPart*> parts;
  for (const PartPtr& message : messages) {
    if (const auto* own = dynamic_cast<const GradientMessage*>(message.get())) {
      parts.push_back(&own->part);
      continue;
    }
    const auto* packed = dynamic_cast<const PackedPart*>(message.get());
    if (packed == nullptr) throw RunError("received what are no gradients of a replica");
    arrived.push_back(unpacked(packed->payload));
    parts.push_back(&arrived.back());
  }
  return parts;
}

// --- When ---

GradientExchange::GradientExchange(const Program& program, RankId rank) {
  if (!program.has_collectives) return;
  for (const Collective& collective : collectives_of(program)) {
    for (const Collective::Member& member : collective.members) {
      if (member.rank != rank) continue;
      const Duty duty{member.instruction, collective.stage};
      reductions_.push_back(member.instruction);
      if (member.before == kNoInstruction) {
        at_start_.push_back(duty);
      } else {
        after_.emplace_back(member.before, duty);
      }
    }
  }
  std::stable_sort(after_.begin(), after_.end(), kByInstruction);
  std::sort(reductions_.begin(), reductions_.end());
}

std::span<const std::pair<InstructionId, GradientExchange::Duty>> GradientExchange::due_after(
    InstructionId computation) const {
  const auto [first, last] = std::equal_range(after_.begin(), after_.end(),
                                              std::pair{computation, Duty{}}, kByInstruction);
  return {first, last};
}

bool GradientExchange::is_shared(InstructionId reduction) const {
  return std::binary_search(reductions_.begin(), reductions_.end(), reduction);
}

}  // namespace pipewright::exec::cpu
