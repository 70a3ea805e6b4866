// The file of a run's log (run_log.hpp), read while it grows.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/descriptor.hpp"
#include "tools/input/run_log.hpp"

namespace pipewright::tools {

/// True for a plain file that begins as such a log does.
bool is_run_log(const std::string& path);

class RunLogFile {
 public:
  /// Throws InputError if there is no such file, or it is no such log.
  explicit RunLogFile(const std::string& path);

  /// Takes what has come since; false if nothing has. Throws InputError for a line that is wrong,
  /// or a file that has become shorter.
  bool read_on();
  const RunLog& log() const { return lines_.log(); }
  /// False where it is known that no process goes on writing; on another host that cannot be known.
  bool may_grow() const;

 private:
  std::string path_;
  Descriptor file_;
  std::int64_t taken_ = 0;  // bytes
  RunLogLines lines_;
};

/// As in a head.
std::string name_of_this_host();

}  // namespace pipewright::tools
