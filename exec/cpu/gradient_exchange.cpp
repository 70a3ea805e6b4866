#include "exec/cpu/gradient_exchange.hpp"

#include <cstdint>
#include <cstring>

#include "core/error.hpp"

namespace pipewright::exec::cpu {
HostPayload GradientMessage::pack() const {
  std::vector<std::uint64_t> sizes{static_cast<std::uint64_t>(part.micro_batches)};
  HostPayload payload({});
  for (const AlignedFloats& gradient : part.gradients) {
    sizes.push_back(gradient.size());
    payload.values.insert(payload.values.end(), gradient.begin(), gradient.end());
  }
  payload.note.resize(sizes.size() * sizeof sizes[0]);
  std::memcpy(payload.note.data(), sizes.data(), payload.note.size());
  return payload;
}

GradientPart unpacked(const HostPayload& payload) {
  std::vector<std::uint64_t> sizes(payload.note.size() / sizeof(std::uint64_t));
  if (!sizes.empty()) std::memcpy(sizes.data(), payload.note.data(), payload.note.size());
  std::uint64_t all = 0;
  for (std::size_t i = 1; i < sizes.size(); ++i) all += sizes[i];
  if (sizes.empty() || all != payload.values.size()) {
    throw RunError("received gradients of a replica that are not whole");
  }
  GradientPart part;
  part.micro_batches = static_cast<int>(sizes.front());
  auto at = payload.values.begin();
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(sizes[i]);
    part.gradients.emplace_back(at, end);
    at = end;
  }
  return part;
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

}  // namespace pipewright::exec::cpu
