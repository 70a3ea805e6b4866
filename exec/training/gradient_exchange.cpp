#include "exec/training/gradient_exchange.hpp"

#include <cstring>

#include "core/base/error.hpp"

namespace pipewright::exec {
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

}  // namespace pipewright::exec
