// Errors by whose fault they are. "Infeasible", "deadlocked" and "mismatch" are
// results, never exceptions.
#pragma once

#include <stdexcept>
#include <string>

namespace pipewright {

/// Root of everything Pipewright throws on purpose; what() is one sentence for
/// the user.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The input is at fault (exit status 2): a file, a flag, a value. what() names
/// the file and the JSON pointer where there is one, what was expected, and
/// what to do.
class InputError : public Error {
 public:
  explicit InputError(std::string message) : Error(message), message_(std::move(message)) {}
  /// `pointer` is a JSON pointer ("/stages/1/layers") or a place in a text file
  /// ("row 2, cell 7"); both may be empty.
  InputError(std::string file, std::string pointer, std::string message);

  const std::string& file() const { return file_; }
  const std::string& pointer() const { return pointer_; }
  const std::string& message() const { return message_; }

 private:
  std::string file_, pointer_, message_;
};

/// This machine cannot do what was asked (exit status 3): no GPU, another
/// cluster, a missing module.
class MachineError : public Error {
 public:
  using Error::Error;
};

/// A run failed while it was under way (exit status 4): a rank died, a payload
/// was not what it should be.
class RunError : public Error {
 public:
  using Error::Error;
};

/// Our own mistake. The message asks the user to report it.
class Bug : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void throw_bug(const char* file, int line, const std::string& what);

}  // namespace pipewright

/// Checks what only a bug of ours can break; stays on in release builds.
#define PIPEWRIGHT_ASSERT(condition, message)                               \
  do {                                                                      \
    if (!(condition)) ::pipewright::throw_bug(__FILE__, __LINE__, message); \
  } while (false)
