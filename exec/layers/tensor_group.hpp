// The ranks that divide the layers of a stage among them, as one of them sees it: which part is its
// own, and what it brings to the sums of all. A layer that needs such a sum pauses
// (exec/base/task.hpp). Whoever runs it brings the members' arrays together and lets it go on
// (exec/training/tensor_sums.hpp), or only notes what it asks for (planner).
//
// In fast numerics members add up what each has multiplied. In exact numerics the sum has to be the
// chain of multiply-adds that a single rank would have made (canonical_gemm.hpp), so members go on
// with it in turns, each where the one before has stopped. One thread at a time.
#pragma once

#include <coroutine>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/tensor_split.hpp"
#include "exec/base/numerics.hpp"
#include "exec/base/task.hpp"

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
  /// Member `index` of `size`.
  TensorGroup(int index, int size, Numerics numerics)
      : index_(index), size_(size), numerics_(numerics) {}
  TensorGroup(const TensorGroup&) = delete;
  TensorGroup& operator=(const TensorGroup&) = delete;

  int index() const { return index_; }
  int size() const { return size_; }
  Numerics numerics() const { return numerics_; }

  /// For co_await: pauses until `sum` has become the sum. It must stay where it is meanwhile.
  class Pause {
   public:
    Pause(TensorGroup& group, SumOfMembers& sum) : group_(group), sum_(sum) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> paused) {
      if (group_.numerics_ == Numerics::Fast) sum_.multiply();
      PIPEWRIGHT_ASSERT(group_.wanted_ == nullptr, "two computations of a stage pause at once");
      group_.wanted_ = &sum_;
      group_.paused_ = paused;
    }
    void await_resume() const noexcept {}

   private:
    TensorGroup& group_;
    SumOfMembers& sum_;
  };
  Pause together(SumOfMembers& sum) { return {*this, sum}; }

  /// A computation that has paused.
  struct Paused {
    SumOfMembers* wanted = nullptr;  // null: none has
    std::coroutine_handle<> computation;
  };
  /// Which one has paused since the last call; the caller resumes it.
  Paused take_paused() {
    return {std::exchange(wanted_, nullptr), std::exchange(paused_, nullptr)};
  }

 private:
  const int index_, size_;
  const Numerics numerics_;
  SumOfMembers* wanted_ = nullptr;
  std::coroutine_handle<> paused_;
};

/// Lets a computation on a device that counts go on wherever it pauses; paused(sum) hears of it.
template <class T, class Paused>
T run_counting(Task<T> task, TensorGroup* group, Paused paused) {
  task.start();
  while (!task.has_ended()) {
    const TensorGroup::Paused at = group->take_paused();
    paused(*at.wanted);
    at.computation.resume();
  }
  return task.take();
}

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
