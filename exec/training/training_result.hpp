// What a training reports on every kind of device, beside what the runtime reports of every run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "exec/runtime/evaluation_report.hpp"
#include "exec/runtime/runtime.hpp"
#include "exec/runtime/verify_report.hpp"

namespace pipewright::exec {

struct TrainingResult : RunResult {
  std::optional<VerifyReport> verify;          // if it was asked for
  std::optional<EvaluationReport> evaluation;  // of a run that is forward only
  /// By rank: the most bytes of weights, gradients, optimizer state, activations and messages that
  /// it held at once. Empty if the last step did not end.
  std::vector<std::int64_t> peak_bytes;
  /// The part of it that no plan speaks of: libraries' own memory, and what is kept for use but not
  /// used. Empty where there is none.
  std::vector<std::int64_t> unplanned_bytes;
};

}  // namespace pipewright::exec
