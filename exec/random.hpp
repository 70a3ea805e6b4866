// Random numbers that depend on a key and a position only: the same on every machine, for every
// partition, in any order of asking. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace pipewright::exec {

/// One step of the splitmix64 generator, used as a hash.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t key_of(std::uint64_t seed, std::uint64_t purpose) {
  return mix(mix(seed) ^ purpose);
}

/// A key for a named thing.
constexpr std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = mix(seed);
  for (const char c : name) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

/// The i-th number of a key's sequence, in [-1, 1); a multiple of 2^-23, so exact in a float.
constexpr float symmetric_uniform(std::uint64_t key, std::uint64_t i) {
  const auto bits = static_cast<std::int32_t>(mix(key + i) >> 40);  // 24 bits
  return static_cast<float>(bits - (1 << 23)) / static_cast<float>(1 << 23);
}

/// The i-th number of a key's sequence, in [0, n).
constexpr std::uint64_t uniform_below(std::uint64_t key, std::uint64_t i, std::uint64_t n) {
  // The bias of the remainder is below n / 2^64.
  return mix(key + i) % n;
}

}  // namespace pipewright::exec
