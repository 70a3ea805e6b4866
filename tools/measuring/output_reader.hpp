// Reads step times and peaks of memory out of what a training prints.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.hpp"

namespace re2 {
class RE2;
}  // namespace re2

namespace pipewright::tools {

/// What a group of a regular expression holds, and in which unit.
struct OutputGroup {
  enum class What { Step, Peak, OutOfMemory };
  What what = What::Step;
  double unit = 1;  // nanoseconds or bytes
  int group = 0;    // its number; of OutOfMemory any
};
struct OutputPattern {
  std::shared_ptr<const re2::RE2> regex;
  std::vector<OutputGroup> groups;
};

/// "step_ms=iteration \(ms\): ([0-9.]+)", whose first group is meant, or a regular expression
/// (RE2's) with groups that have such names: "(?<step_ms>[0-9.]+) ms, (?<peak_gib>…) GiB".
/// Names: step_s, step_ms, step_us, step_ns; peak_bytes, peak_kib, peak_mib, peak_gib, peak_kb,
/// peak_mb, peak_gb; out_of_memory, which needs no group. Throws InputError.
OutputPattern read_output_pattern(const std::string& text);

/// What has been read of a run.
struct OutputReading {
  std::optional<Nanoseconds> step;  // the median of all
  std::optional<Bytes> peak;        // the largest
  int steps = 0;
  bool says_out_of_memory = false;  // by a pattern, or as PyTorch, CUDA and others say it
};

/// Of one run. Lines are read whole, up to 8 KiB.
class OutputReader {
 public:
  explicit OutputReader(const std::vector<OutputPattern>& patterns) : patterns_(patterns) {}

  void read(std::string_view bytes);
  /// After the last byte.
  OutputReading finish();
  /// The last lines.
  const std::string& tail() const { return tail_; }

 private:
  void read_line();
  void take(const OutputGroup& group, const std::string& number);

  const std::vector<OutputPattern>& patterns_;
  std::string line_, tail_;
  std::vector<double> steps_;
  double peak_ = 0;
  bool says_out_of_memory_ = false;
};

}  // namespace pipewright::tools
