// Where the computations of a stage pause: until the ranks that divide its layers have brought
// something together (exec/layers/tensor_group.hpp, exec/layers/expert_group.hpp). A layer pauses
// with co_await (exec/base/task.hpp), in whatever chain it stands; whoever runs it does what is
// wanted and lets it go on (exec/devices/cpu/strands.hpp), or only notes it (planner). One thread
// at a time.
#pragma once

#include <coroutine>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"

namespace pipewright::exec {

struct RowsOfMembers;
struct SumOfMembers;
struct ExchangeOfMembers;
struct RingOfMembers;

/// One of these; it stays where it is until the computation goes on, or, where others than the next
/// computation wait for it, until the one after that. None: the computation only waits for what is
/// under way beside it.
struct Wanted {
  SumOfMembers* sum = nullptr;
  ExchangeOfMembers* exchange = nullptr;
  RowsOfMembers* rows = nullptr;
  RingOfMembers* ring = nullptr;
  std::string_view axis = {};  // whose members bring it together (core/order/devices.hpp)

  explicit operator bool() const {
    return sum != nullptr || exchange != nullptr || rows != nullptr || ring != nullptr;
  }
};

class PausePoint {
 public:
  PausePoint() = default;
  PausePoint(const PausePoint&) = delete;
  PausePoint& operator=(const PausePoint&) = delete;

  /// For co_await.
  class Pause {
   public:
    Pause(PausePoint& point, Wanted wanted) : point_(point), wanted_(wanted) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> computation) {
      PIPEWRIGHT_ASSERT(!point_.paused_.wanted, "two computations of a stage pause at once");
      point_.paused_ = {wanted_, computation};
    }
    void await_resume() const noexcept {}

   private:
    PausePoint& point_;
    Wanted wanted_;
  };
  Pause until(Wanted wanted) { return {*this, wanted}; }

  /// A computation that has paused.
  struct Paused {
    Wanted wanted;
    std::coroutine_handle<> computation;
  };
  /// Which one has paused since the last call; the caller resumes it.
  Paused take_paused() { return std::exchange(paused_, {}); }

 private:
  Paused paused_;
};

}  // namespace pipewright::exec
