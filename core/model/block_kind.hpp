// What a block of a transformer consists of: a mixer, which lets tokens see one another, and a
// feed-forward part. Blocks of hybrid models have one of the two alone. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pipewright {

/// `Window`: attention to the last tokens alone.
enum class Mixer : std::uint8_t { Attention, Window, Mamba, None };
enum class FeedForward : std::uint8_t { Dense, Experts, None };

struct BlockKind {
  Mixer mixer = Mixer::Attention;
  FeedForward feed_forward = FeedForward::Dense;

  constexpr bool has_experts() const { return feed_forward == FeedForward::Experts; }
  constexpr bool has_attention() const {
    return mixer == Mixer::Attention || mixer == Mixer::Window;
  }
  /// Each has a norm in front of it.
  constexpr int parts() const {
    return (mixer != Mixer::None ? 1 : 0) + (feed_forward != FeedForward::None ? 1 : 0);
  }
  constexpr std::size_t index() const {
    return static_cast<std::size_t>(mixer) * 3 + static_cast<std::size_t>(feed_forward);
  }
  constexpr bool operator==(const BlockKind&) const = default;
};
inline constexpr BlockKind kDenseBlock{}, kExpertBlock{Mixer::Attention, FeedForward::Experts};

inline constexpr std::size_t kBlockKinds = 12;
/// By index().
constexpr std::array<BlockKind, kBlockKinds> all_block_kinds() {
  std::array<BlockKind, kBlockKinds> kinds{};
  for (std::size_t k = 0; k < kBlockKinds; ++k)
    kinds[k] = {static_cast<Mixer>(k / 3), static_cast<FeedForward>(k % 3)};
  return kinds;
}

}  // namespace pipewright
