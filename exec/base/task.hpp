// A computation that may pause: a coroutine that runs until it needs something from outside, goes
// back to whoever started it, and goes on from there when it is resumed. A Task may wait for
// another one with co_await; the two then pause and go on as one. What it waits for, and who
// resumes it, is the affair of what it awaits innermost (exec/layers/tensor_group.hpp).
//
// A Task does nothing before start(). It owns its frame: when it goes, so does the computation,
// wherever it stands. What it throws comes out of take(). One thread at a time; not always the
// same.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "core/base/error.hpp"

namespace pipewright::exec {

template <class T>
class Task;

namespace task_detail {

struct PromiseBase {
  std::coroutine_handle<> caller;  // goes on when this has ended; none: whoever resumed it does
  std::exception_ptr error;

  struct Ending {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      const std::coroutine_handle<> next = ended.promise().caller;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  std::suspend_always initial_suspend() const noexcept { return {}; }
  Ending final_suspend() const noexcept { return {}; }
  void unhandled_exception() { error = std::current_exception(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;

  Task<T> get_return_object();
  void return_value(T result) { value = std::move(result); }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const {}
  void take() const {}
};

}  // namespace task_detail

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = task_detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  explicit operator bool() const { return static_cast<bool>(handle_); }
  /// Runs until it pauses or has ended.
  void start() { handle_.resume(); }
  bool has_ended() const { return handle_.done(); }
  /// Its result, once, when it has ended; throws what it has thrown.
  T take() {
    promise_type& promise = handle_.promise();
    if (promise.error) std::rethrow_exception(promise.error);
    return promise.take();
  }

  // co_await, by another Task.
  bool await_ready() const noexcept { return false; }
  Handle await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().caller = caller;
    return handle_;
  }
  T await_resume() { return take(); }

 private:
  Handle handle_;
};

namespace task_detail {

template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

}  // namespace task_detail

/// Of a computation that does not pause. Bug if it does.
template <class T>
T run_now(Task<T> task) {
  task.start();
  PIPEWRIGHT_ASSERT(task.has_ended(), "a computation pauses where nobody would resume it");
  return task.take();
}

}  // namespace pipewright::exec
