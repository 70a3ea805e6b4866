// run --mode evaluate and predict: a plan's forwards over a data set, on this machine's CPUs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/evaluation/data.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/command.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

struct ForwardRequest {
  exec::RunMode mode = exec::RunMode::Evaluate;  // or Predict
  std::string output;                            // predict: the file of the outputs
};

std::vector<Flag> forward_flags();
/// nullopt if the plan is to be trained. Throws InputError for --output without a prediction, and
/// for flags of a training without one.
std::optional<ForwardRequest> forward_request(const Arguments& arguments);

/// As --mode takes it.
std::string mode_text(exec::RunMode mode);

/// The subject's order becomes its forwards.
void take_forwards(Subject& subject, exec::RunMode mode);

/// A data set and what becomes of it; must outlive the run. Predictions gather in memory.
class ForwardRun {
 public:
  /// `most_steps` of the data set, 0: all. Throws InputError for data that does not fit.
  ForwardRun(const Plan& plan, const exec::DataShape& shape, const exec::DataFiles& files,
             const ForwardRequest& request, int most_steps);

  int steps() const { return steps_; }
  /// Fills in data, mode and outputs.
  void use_in(exec::cpu::Training& training);
  /// Writes the predictions, [samples, width] or [samples, sequence, width].
  void save(const exec::EvaluationReport& report, Session& session) const;

 private:
  const ForwardRequest request_;
  const Model& model_;
  exec::DataSet set_;
  int steps_ = 0;
  std::vector<float> outputs_;
};

/// "1024 samples: loss 2.3026, accuracy 11.2 %, perplexity 10.0".
std::string evaluation_text(const exec::EvaluationReport& report);
Json evaluation_fields(const exec::EvaluationReport& report);

}  // namespace pipewright::tools
