// What a forward-only run is for: the loss and the metrics of a data set, or the model's outputs.
// The last stage makes an outcome of each micro-batch; an Evaluation adds them up in the order of
// the micro-batches, so that neither the schedule nor the partition shows in any bit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/model/model.hpp"
#include "exec/runtime/evaluation_report.hpp"
#include "exec/runtime/peers.hpp"

namespace pipewright::exec {

enum class RunMode : std::uint8_t { Train, Evaluate, Predict };

/// Of the samples of one micro-batch that count: a data set need not fill its last one.
struct ForwardOutcome {
  double loss = 0;              // the sum over `terms`
  std::int64_t terms = 0;       // rows; mse: elements
  std::int64_t rows = 0;        // of these samples
  std::int64_t correct = 0;     // rows whose largest output is the label's (softmax-cross-entropy)
  std::int64_t not_finite = 0;  // rows with an output that is no finite number; never correct
  std::vector<float> outputs;   // predict: [rows][width], as the last layer leaves them
};

/// Called with the outputs of a step's samples, in their order.
using OutputSink = std::function<void(std::span<const float> outputs)>;

/// put() may be called by any number of threads at once, each for micro-batches of its own; the
/// rest while no other thread uses it.
class Evaluation {
 public:
  Evaluation(const Model& model, RunMode mode, int micro_batches, OutputSink sink);

  void put(int micro_batch, ForwardOutcome outcome);
  /// All micro-batches of a step have been put, here or in another process of the run: with
  /// `peers`, all call it, and each of them learns all.
  void end_step(Peers* peers = nullptr);
  EvaluationReport report() const;

 private:
  void collect(Peers& peers);

  const RunMode mode_;
  const LossKind loss_kind_;
  const bool of_text_;
  const int sequence_;
  OutputSink sink_;
  std::vector<ForwardOutcome> outcomes_;  // by micro-batch of the step
  double loss_ = 0;
  std::int64_t terms_ = 0, rows_ = 0, correct_ = 0, not_finite_ = 0;
};

/// The outcome of outputs[rows][width]; the first `counted` rows count. `labels` and `targets` as
/// in MicroBatch; scratch[rows · width] is overwritten. `outputs` and `scratch` may be one array if
/// the outputs are not kept.
struct OutcomeOf {
  LossKind loss = LossKind::SoftmaxCrossEntropy;
  int counted = 0, width = 0;
  const float* outputs = nullptr;
  const std::int32_t* labels = nullptr;
  const float* targets = nullptr;
  float* scratch = nullptr;
};
ForwardOutcome evaluated(const OutcomeOf& of);
ForwardOutcome predicted(const OutcomeOf& of);

}  // namespace pipewright::exec
