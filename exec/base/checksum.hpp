// A checksum of what a message carries, so that one flipped bit on its way is found
// (RunOptions::verify_payloads). 64 bits, made of eight words at a time: not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pipewright::exec {

/// Of note and values. Every single flipped bit changes it, because each step can be undone.
std::uint64_t checksum_of(std::span<const std::byte> note, std::span<const float> values);

}  // namespace pipewright::exec
