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

/// Where the i-th of n things stands in a random order of them: for each key another one-to-one map
/// of [0, n) onto itself, without a table. Four rounds of a Feistel network map the smallest even
/// number of bits that holds n; what falls outside is mapped on until it falls inside.
constexpr std::uint64_t shuffled(std::uint64_t key, std::uint64_t i, std::uint64_t n) {
  unsigned half = 1;
  while (half < 32 && (n - 1) >> (2 * half) != 0) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = i >> half, right = i & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (mix(key_of(key, round) ^ right) & mask);
      left = right;
      right = next;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

}  // namespace pipewright::exec
