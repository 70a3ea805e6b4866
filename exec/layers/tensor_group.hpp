// The ranks that divide the layers of a stage among them, as one of them sees it: which part is its
// own, and what it brings to the sums of all. A layer that needs such a sum pauses
// (exec/layers/pause_point.hpp).
//
// In fast numerics members add up what each has multiplied. In exact numerics the sum has to be the
// chain of multiply-adds that a single rank would have made (canonical_gemm.hpp), so members go on
// with it in turns, each where the one before has stopped. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/model/tensor_split.hpp"
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
  std::function<void()> multiply;  // fast numerics: overwrites `values` by the member's own summand
  std::span<const ChainTurn> turns;  // exact numerics: who adds to `values`, one after another
  std::function<void(const Range&)> go_on;  // with a turn of its own

  std::size_t size() const {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  }
};

class TensorGroup {
 public:
  /// Member `index` of `size`. The point must outlive it.
  TensorGroup(int index, int size, Numerics numerics, PausePoint& point)
      : index_(index), size_(size), numerics_(numerics), point_(point) {}

  int index() const { return index_; }
  int size() const { return size_; }
  Numerics numerics() const { return numerics_; }

  /// For co_await: pauses until `sum` has become the sum. It must stay where it is meanwhile.
  PausePoint::Pause together(SumOfMembers& sum) {
    if (numerics_ == Numerics::Fast) sum.multiply();
    return point_.until({.sum = &sum});
  }

 private:
  const int index_, size_;
  const Numerics numerics_;
  PausePoint& point_;
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
