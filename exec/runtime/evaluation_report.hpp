// What an evaluation has found (exec/evaluation/evaluation.hpp), as a run reports it. Plain data.
#pragma once

#include <cstdint>
#include <optional>

namespace pipewright::exec {

struct EvaluationReport {
  std::int64_t samples = 0;
  std::int64_t rows = 0,
               not_finite_rows = 0;  // of outputs; those with one that is no finite number
  // Evaluate:
  std::optional<double> loss;        // the mean over rows (mse: elements)
  std::optional<double> accuracy;    // softmax-cross-entropy: the share of rows
  std::optional<double> perplexity;  // e^loss, of a model of text
};

}  // namespace pipewright::exec
