#include "exec/collectives/shared_group.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "exec/base/buffer.hpp"
#include "exec/collectives/summation.hpp"

namespace pipewright::exec::collectives {
namespace {

/// Up to here each member sums everything by itself, which saves a round.
constexpr std::size_t kSmallBytes = 4096;

enum class Operation : std::uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast };

/// What all members have to agree on, in one word.
std::uint64_t call_of(Operation operation, std::size_t size, int detail = 0) {
  return (static_cast<std::uint64_t>(size) << 16U) | (static_cast<std::uint64_t>(detail) << 3U) |
         static_cast<std::uint64_t>(operation);
}
std::uint64_t call_of(Operation operation, const Summands& values) {
  return call_of(operation, values.size, static_cast<int>(values.kind));
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

std::size_t sum_of(std::span<const std::size_t> sizes) {
  std::size_t sum = 0;
  for (const std::size_t size : sizes) sum += size;
  return sum;
}

}  // namespace

/// However a call ends, its member reads no more.
struct SharedGroup::Reading {
  Board& board;
  ~Reading() { board.end_reading(); }
};

/// The elements in shares, and of each share a piece at a time.
struct SharedGroup::Shares {
  const Summands& values;
  const int members;
  const std::size_t most;  // bytes of a piece

  std::size_t offset(int m) const {
    return share_begin(values.size, members, m) * element_bytes(values.kind);
  }
  std::size_t longest() const {
    const auto n = static_cast<std::size_t>(members);
    return (values.size + n - 1) / n * element_bytes(values.kind);
  }
  /// Of the piece of share m that begins at byte `at` of it.
  std::size_t bytes(int m, std::size_t at) const {
    const std::size_t share = offset(m + 1) - offset(m);
    return at < share ? std::min(most, share - at) : 0;
  }
};

SharedGroup::SharedGroup(Board::Place place, std::shared_ptr<void> memory)
    : memory_(std::move(memory)), window_bytes_(place.window_bytes), board_(std::move(place)) {}

/// At a time; at least 1, so that a call without bytes is one round.
std::size_t SharedGroup::piece_of(std::size_t bytes) const {
  return std::max<std::size_t>(1, board_.copies() ? std::min(bytes, window_bytes_) : bytes);
}

/// Where memory is shown where it lies, nobody leaves before all have read.
void SharedGroup::finish(std::uint64_t call) {
  if (board_.copies()) return;
  board_.begin_round();
  board_.show({.call = call});
  for (int m = 0; m < members(); ++m) board_.shown_by(m);
}

// --- Sums ---

/// Round after round, the own piece becomes the sum of what all show of it; where sums are
/// gathered, each round also shows the sums of the round before. A window has a lane for each
/// member's piece, and the sums take that of the own one, which nobody else needs.
bool SharedGroup::reduce_in_rounds(const Summands& values, std::uint64_t call, bool gathers) {
  const std::size_t element = element_bytes(values.kind), n = index_of(members());
  std::size_t most = std::max(element, Shares{values, members(), 0}.longest());
  if (board_.copies()) most = std::min(most, window_bytes_ / element / n * element);
  const Shares shares{values, members(), most};
  const std::size_t end = shares.longest() + (gathers ? most : 0);
  std::vector<const std::byte*> summands(n);
  bool fine = true, own_is_fine = true;
  for (std::size_t at = 0; at == 0 || at < end; at += most) {
    const bool has_sums = gathers && at > 0;
    if (std::byte* window = board_.begin_round()) {
      for (int m = 0; m < members(); ++m) {
        std::byte* const lane = window + index_of(m) * most;
        if (m != member())
          copy_bytes(lane, values.at + shares.offset(m) + at, shares.bytes(m, at));
        else if (has_sums)
          copy_bytes(lane, values.at + shares.offset(m) + at - most, shares.bytes(m, at - most));
      }
    }
    board_.show({.at = values.at, .call = call, .fine = own_is_fine});
    const std::size_t own_offset = shares.offset(member()) + at;
    summands[index_of(member())] = values.at + own_offset;
    for (int step = 1; step < members(); ++step) {
      const int m = (member() + step) % members();
      const Shown shown = board_.shown_by(m);
      summands[index_of(m)] = shown.at + (board_.copies() ? index_of(member()) * most : own_offset);
      fine = fine && shown.fine;
      if (!has_sums) continue;
      const std::size_t offset = shares.offset(m) + at - most;
      copy_bytes(values.at + offset, shown.at + (board_.copies() ? index_of(m) * most : offset),
                 shares.bytes(m, at - most));
    }
    own_is_fine = add_up(values.kind, summands, shares.bytes(member(), at) / element,
                         values.at + own_offset) &&
                  own_is_fine;
  }
  finish(call);
  return fine && own_is_fine;
}

bool SharedGroup::reduce_all(const Summands& values, std::uint64_t call) {
  const std::size_t bytes = values.size * element_bytes(values.kind);
  if (std::byte* window = board_.begin_round()) copy_bytes(window, values.at, bytes);
  board_.show({.at = values.at, .call = call});
  std::vector<const std::byte*> summands;
  for (int m = 0; m < members(); ++m) summands.push_back(board_.shown_by(m).at);
  // The others still read what the sums will replace.
  alignas(kAlignment) std::array<std::byte, kSmallBytes> sums;
  const bool fine = add_up(values.kind, summands, values.size, sums.data());
  finish(call);
  copy_bytes(values.at, sums.data(), bytes);
  return fine;
}

bool SharedGroup::all_reduce(Summands values) {
  const Reading reading{board_};
  const std::uint64_t call = call_of(Operation::AllReduce, values);
  const bool is_small = values.size * element_bytes(values.kind) <= kSmallBytes;
  return is_small ? reduce_all(values, call) : reduce_in_rounds(values, call, true);
}

bool SharedGroup::reduce_scatter(Summands values) {
  const Reading reading{board_};
  return reduce_in_rounds(values, call_of(Operation::ReduceScatter, values), false);
}

// --- Copies ---

void SharedGroup::all_gather(PartsIn all) {
  const Reading reading{board_};
  const std::uint64_t call = call_of(Operation::AllGather, sum_of(all.sizes));
  const std::size_t longest = *std::max_element(all.sizes.begin(), all.sizes.end());
  const std::size_t most = piece_of(longest);
  std::vector<std::byte*> parts;
  for (std::byte* at = all.bytes.data(); const std::size_t size : all.sizes) {
    parts.push_back(at);
    at += size;
  }
  const auto bytes_from = [&](int m, std::size_t at) {
    return at < all.sizes[index_of(m)] ? std::min(most, all.sizes[index_of(m)] - at) : 0;
  };
  for (std::size_t at = 0; at == 0 || at < longest; at += most) {
    std::byte* const own = parts[index_of(member())] + at;
    if (std::byte* window = board_.begin_round()) copy_bytes(window, own, bytes_from(member(), at));
    board_.show({.at = own, .call = call});
    for (int step = 1; step < members(); ++step) {
      const int m = (member() + step) % members();
      copy_bytes(parts[index_of(m)] + at, board_.shown_by(m).at, bytes_from(m, at));
    }
  }
  finish(call);
}

/// How far an all_to_all is.
struct SharedGroup::Lanes {
  std::size_t done = 0;     // bytes of each pair's part, where they have so many
  std::size_t most = 0;     // bytes of each pair's part in a round
  std::size_t longest = 0;  // the longest part of any pair
};

void SharedGroup::round_of_all(const PartsOut& out, const PartsIn& in, Lanes& lanes) {
  const std::size_t n = index_of(members()), head = n * sizeof(std::size_t);
  const auto bytes_left = [&](std::size_t size) {
    return lanes.done < size ? std::min(lanes.most, size - lanes.done) : 0;
  };
  const std::uint64_t call = call_of(Operation::AllToAll, 0);
  // What a member has for itself does not go through its window.
  const auto lane = [&](int from, int to) {
    return head + index_of(to < from ? to : to - 1) * lanes.most;
  };
  if (std::byte* window = board_.begin_round()) {
    std::memcpy(window, out.sizes.data(), head);
    const std::byte* part = out.bytes.data();
    for (int m = 0; m < members(); ++m) {
      const std::size_t size = out.sizes[index_of(m)];
      if (m != member())
        copy_bytes(window + lane(member(), m), part + lanes.done, bytes_left(size));
      part += size;
    }
  }
  board_.show({.at = out.bytes.data(), .sizes = out.sizes.data(), .call = call});
  for (int step = 0; step < members(); ++step) {
    const int m = (member() + step) % members();
    const Shown shown = board_.shown_by(m);
    const auto* sizes =
        board_.copies() ? reinterpret_cast<const std::size_t*>(shown.at) : shown.sizes;
    const std::size_t size = sizes[index_of(member())];
    if (size != in.sizes[index_of(m)])
      board_.fail("member " + std::to_string(m) + " sends " + std::to_string(size) +
                  " bytes to member " + std::to_string(member()) + ", which expects " +
                  std::to_string(in.sizes[index_of(m)]));
    const std::size_t before = sum_of({sizes, index_of(member())});
    const std::byte* from = shown.at + before;
    if (board_.copies())
      from = m == member() ? out.bytes.data() + before + lanes.done : shown.at + lane(m, member());
    std::byte* const to = in.bytes.data() + sum_of(in.sizes.first(index_of(m)));
    copy_bytes(to + lanes.done, from, bytes_left(size));
    lanes.longest = std::max(lanes.longest, *std::max_element(sizes, sizes + n));
  }
  lanes.done += lanes.most;
}

void SharedGroup::all_to_all(PartsOut out, PartsIn in) {
  const Reading reading{board_};
  const std::size_t n = index_of(members());
  Lanes lanes;
  const std::size_t others = std::max<std::size_t>(1, n - 1);
  lanes.most = board_.copies() ? (window_bytes_ - n * sizeof(std::size_t)) / others : SIZE_MAX;
  do {
    round_of_all(out, in, lanes);
  } while (board_.copies() && lanes.done < lanes.longest);
  finish(call_of(Operation::AllToAll, 0));
}

void SharedGroup::broadcast(int root, std::span<std::byte> bytes) {
  const Reading reading{board_};
  const std::uint64_t call = call_of(Operation::Broadcast, bytes.size(), root);
  const std::size_t most = piece_of(bytes.size());
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += most) {
    std::byte* const here = bytes.data() + at;
    const std::size_t size = std::min(most, bytes.size() - at);
    std::byte* const window = board_.begin_round();
    if (window != nullptr && member() == root) copy_bytes(window, here, size);
    board_.show({.at = here, .call = call});
    if (member() != root) copy_bytes(here, board_.shown_by(root).at, size);
  }
  finish(call);
}

}  // namespace pipewright::exec::collectives
