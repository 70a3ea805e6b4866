// What a run does before its steps and how long each part takes. The names are those of Paddle's
// Engine: build the model graph, plan, parallel (lower to per-rank Programs), init_comm (connect),
// initialize (parameters), steps.
//
// A PhaseLog belongs to one thread at a time; run_on_cpu() hands it to a rank's thread for the
// moment in which the last rank is ready, while its caller waits. Times are the steady clock's.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pipewright::exec {

enum class Phase : std::uint8_t { Build, Plan, Parallel, InitComm, Initialize, Steps };
std::string_view to_string(Phase phase);  // "build", …, "init_comm", "initialize", "steps"

struct PhaseSpan {
  Phase phase = Phase::Build;
  std::int64_t start_ns = 0, end_ns = 0;  // from the beginning of the first one

  std::int64_t duration_ns() const { return end_ns - start_ns; }
};

class PhaseLog {
 public:
  /// Ends the one before, if there is one.
  void begin(Phase phase);
  /// Ends the last one. Nothing if none has begun.
  void finish();
  /// Those that have ended, in their order; each begins where the one before it ended, or later.
  const std::vector<PhaseSpan>& spans() const { return spans_; }

 private:
  std::vector<PhaseSpan> spans_;
  std::int64_t zero_ns_ = 0;
  bool is_open_ = false, has_begun_ = false;
  PhaseSpan open_;
};

}  // namespace pipewright::exec
