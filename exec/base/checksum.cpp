#include "exec/base/checksum.hpp"

#include <bit>
#include <cstring>

namespace pipewright::exec {
namespace {

/// A step that can be undone for either argument: xor, an odd factor, a rotation.
std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * 0x9E3779B97F4A7C15U, 29);
}

std::uint64_t mixed(std::uint64_t state, const std::byte* from, std::size_t size) {
  std::uint64_t word = 0;
  for (; size >= sizeof word; size -= sizeof word, from += sizeof word) {
    std::memcpy(&word, from, sizeof word);
    state = mixed(state, word);
  }
  word = 0;
  if (size > 0) std::memcpy(&word, from, size);
  return mixed(state, word);
}

}  // namespace

std::uint64_t checksum_of(std::span<const std::byte> note, std::span<const float> values) {
  std::uint64_t state = mixed(note.size(), values.size());
  state = mixed(state, note.data(), note.size());
  return mixed(state, reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
}

}  // namespace pipewright::exec
