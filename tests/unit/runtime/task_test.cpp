#include "exec/base/task.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace pipewright::exec {
namespace task_test {

/// What pauses, and whom to resume.
struct Stop {
  std::coroutine_handle<> paused;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) { paused = handle; }
  void await_resume() const noexcept {}
};

Task<int> twice(Stop& stop, int x) {
  co_await stop;
  co_return 2 * x;
}

Task<int> sum_of_two(Stop& stop, std::string& log) {
  const int a = co_await twice(stop, 3);
  log += "a";
  const int b = co_await twice(stop, 4);
  log += "b";
  co_return a + b;
}

TEST(Task, DoesNothingBeforeItStarts) {
  Stop stop;
  std::string log;
  const Task<int> task = sum_of_two(stop, log);
  EXPECT_FALSE(task.has_ended());
  EXPECT_FALSE(static_cast<bool>(stop.paused));
}

TEST(Task, GoesOnWhereItsInnermostPaused) {
  Stop stop;
  std::string log;
  Task<int> task = sum_of_two(stop, log);
  task.start();
  EXPECT_EQ(log, "");
  stop.paused.resume();
  EXPECT_EQ(log, "a");
  EXPECT_FALSE(task.has_ended());
  // Another thread may go on with it.
  std::thread([&] { stop.paused.resume(); }).join();
  EXPECT_TRUE(task.has_ended());
  EXPECT_EQ(log, "ab");
  EXPECT_EQ(task.take(), 14);
}

Task<void> throwing(Stop& stop) {
  co_await stop;
  throw std::runtime_error("inside");
}
Task<void> outer(Stop& stop, bool& went_on) {
  co_await throwing(stop);
  went_on = true;
}

TEST(Task, WhatIsThrownInsideComesOutAtTheEnd) {
  Stop stop;
  bool went_on = false;
  Task<void> task = outer(stop, went_on);
  task.start();
  stop.paused.resume();
  ASSERT_TRUE(task.has_ended());
  EXPECT_THROW(task.take(), std::runtime_error);
  EXPECT_FALSE(went_on);
}

Task<void> holding(Stop& stop, std::shared_ptr<int> held) {
  co_await stop;
  EXPECT_NE(held, nullptr);
}

TEST(Task, LetsGoOfWhatItHoldsWhereverItStands) {
  Stop stop;
  const auto held = std::make_shared<int>(1);
  {
    Task<void> task = holding(stop, held);
    task.start();
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Task, RunNowIsForComputationsThatDoNotPause) {
  Stop stop;
  EXPECT_EQ(run_now([]() -> Task<int> { co_return 5; }()), 5);
  EXPECT_THROW(run_now(twice(stop, 1)), Bug);
}

}  // namespace task_test
}  // namespace pipewright::exec
