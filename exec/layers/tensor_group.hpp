// The ranks that divide the layers of a stage among them along an axis, as one of them sees it:
// which part is its own, and what it brings to the sums of all. A layer that needs such a sum
// pauses (exec/layers/pause_point.hpp).
//
// In fast numerics members add up what each has multiplied. In exact numerics the sum has to be the
// chain of multiply-adds that a single rank would have made (canonical_gemm.hpp), so members go on
// with it in turns, each where the one before has stopped. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/tensor_split.hpp"
#include "core/order/devices.hpp"
#include "exec/base/numerics.hpp"
#include "exec/layers/pause_point.hpp"

namespace pipewright::exec {

/// A member goes on with the chain, over these of its own numbers.
struct ChainTurn {
  int member = 0;
  Range own;
};

/// An array of `rows` times `width` numbers that becomes a sum over the members.
struct SumOfMembers {
  std::string what;  // a name that is unique in the stage and direction: the layer's path
  float* values = nullptr;
  int rows = 0, width = 0;
  /// Fast numerics: overwrites the values by the member's own summand.
  std::function<void(float* values)> multiply;
  std::span<const ChainTurn> turns;  // exact numerics: who adds to `values`, one after another
  std::function<void(const Range&, float* values)> go_on;  // with a turn of its own
  /// Each member wants the sum of its own rows alone (own_rows()); the others' mean nothing then.
  bool scatters = false;
  bool in_floats = false;  // of TensorOps::take_floats()

  std::size_t size() const {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  }
};

/// An array of `rows` times `width` numbers of which each member has its own rows, and then all.
struct RowsOfMembers {
  std::string what;  // as of a sum
  float* values = nullptr;
  int rows = 0, width = 0;
  bool in_floats = false;  // as of a sum
};

/// Arrays of `rows` times `width` numbers each, which go to the next member, while those of the
/// member before arrive; the last member's go to the first one.
struct RingOfMembers {
  struct Hop {
    const float* sent = nullptr;
    float* arrived = nullptr;
  };
  std::string what;  // as of a sum
  std::vector<Hop> arrays;
  int rows = 0, width = 0;  // of each
  bool beside = false;      // the member computes meanwhile, and then waits (AxisGroup::arrived())
};

/// Of an array's rows those of member `index` of `members`, who divide them evenly.
inline Range own_rows(int rows, int index, int members) {
  const std::int64_t each = rows / members;
  return {index * each, each};
}

/// Those along one axis.
class AxisGroup {
 public:
  /// Member `index` of `size`. The point must outlive it.
  AxisGroup(std::string_view axis, int index, int size, Numerics numerics, PausePoint& point)
      : axis_(axis), index_(index), size_(size), numerics_(numerics), point_(point) {}

  int index() const { return index_; }
  int size() const { return size_; }
  Numerics numerics() const { return numerics_; }

  /// For co_await: pauses until `sum` has become the sum. It must stay where it is meanwhile.
  PausePoint::Pause together(SumOfMembers& sum) {
    if (numerics_ == Numerics::Fast) sum.multiply(sum.values);
    return point_.until({.sum = &sum, .axis = axis_});
  }
  /// The same, until all rows are there.
  PausePoint::Pause gathered(RowsOfMembers& rows) {
    return point_.until({.rows = &rows, .axis = axis_});
  }
  /// The same, until all have arrived; of what goes on beside the next computation, until it is on
  /// its way. Then it must stay where it is until arrived().
  PausePoint::Pause sent(RingOfMembers& ring) {
    return point_.until({.ring = &ring, .axis = axis_});
  }
  /// Pauses until what is on its way has arrived.
  PausePoint::Pause arrived() { return point_.until({.axis = axis_}); }

 private:
  const std::string_view axis_;
  const int index_, size_;
  const Numerics numerics_;
  PausePoint& point_;
};

/// Those that have a part of the layers each.
class TensorGroup : public AxisGroup {
 public:
  TensorGroup(int index, int size, Numerics numerics, PausePoint& point)
      : AxisGroup(kTensorAxis, index, size, numerics, point) {}
};

/// Members take turns range by range: all with the first range of columns, then all with the next.
inline std::vector<ChainTurn> turns_of(const std::vector<Range>& own, int members) {
  std::vector<ChainTurn> turns;
  std::int64_t begin = 0;
  for (const Range& range : own) {
    for (int member = 0; member < members; ++member)
      turns.push_back({member, {begin, range.count}});
    begin += range.count;
  }
  return turns;
}

}  // namespace pipewright::exec
