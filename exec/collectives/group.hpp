// What members of a group do together with their arrays: the collectives of tensor, expert and data
// parallelism (docs/decisions/0031-cpu-collectives.md). Members are threads, processes of one host,
// or processes anywhere; who makes the groups decides (exec/collectives/threads.hpp,
// exec/collectives/process). Every member calls the same operations in the same order, each with
// arrays of its own; a call returns when the member may use its arrays again.
//
// A Group belongs to one thread at a time. When a member is gone, has given up, or calls something
// else, everybody's call throws RunError, and so does every later call of the group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "exec/base/fixed_point.hpp"
#include "exec/base/numerics.hpp"

namespace pipewright::exec::collectives {

/// How elements become a sum.
enum class SumKind : std::uint8_t {
  Floats,       // one after another, in the group's order
  ExactFloats,  // in fixed point, and the sum is rounded once
  FixedPoints,  // in fixed point
};

std::size_t element_bytes(SumKind kind);

/// The elements that a member brings to a sum; results take their place.
struct Summands {
  Summands(std::span<float> values, Numerics numerics);
  /// Sums of sums: members that have added up several arrays each.
  explicit Summands(std::span<FixedPoint> values);

  std::byte* at;
  std::size_t size;  // elements
  SumKind kind;
};

/// Bytes for each member, one after another in its order; they may differ, and be none.
struct PartsOut {
  std::span<const std::byte> bytes;
  std::span<const std::size_t> sizes;  // by member
};
/// The same from each.
struct PartsIn {
  std::span<std::byte> bytes;
  std::span<const std::size_t> sizes;
};

inline std::size_t index_of(int member) { return static_cast<std::size_t>(member); }

/// Where share `index` of so many elements begins; it ends where the next one begins. As the parts
/// of a sharded stage (exec/training/shard.hpp).
inline std::size_t share_begin(std::size_t size, int members, int index) {
  return size * static_cast<std::size_t>(index) / static_cast<std::size_t>(members);
}

/// Called now and then by a member that waits; what it throws ends the call, and the group for this
/// member. Whoever gives one sees by himself that a member is gone: nobody else looks then.
using Look = std::function<void()>;

class Group {
 public:
  virtual ~Group() = default;
  virtual int member() const = 0;
  virtual int members() const = 0;

  /// Every element becomes the sum of all members' elements. In fixed point the same for any order
  /// of summands; with SumKind::Floats members add in ascending order, and over a wire, above
  /// kRingBytes, in the order of the ring (exec/collectives/process/wire_group.hpp). False in all
  /// members if a sum in fixed point is not finite or leaves its range: then the elements mean
  /// nothing.
  [[nodiscard]] virtual bool all_reduce(Summands values) = 0;
  /// The same for the member's own share; the others' elements stay as they are. False: of its own
  /// share.
  [[nodiscard]] virtual bool reduce_scatter(Summands values) = 0;
  /// Members' parts lie one after another in `all`, each member's own there before the call, all
  /// of them after it.
  virtual void all_gather(PartsIn all) = 0;
  /// Part j of `out` becomes part `member()` of member j's `in`. They must not overlap. Throws
  /// RunError where two members do not agree on a size.
  virtual void all_to_all(PartsOut out, PartsIn in) = 0;
  /// All have what `root` had.
  virtual void broadcast(int root, std::span<std::byte> bytes) = 0;

  /// Ends the calls of all members, those to come as well, with this sentence. Any thread.
  virtual void give_up(const std::string& why) noexcept = 0;
};

}  // namespace pipewright::exec::collectives
