// What a forward-only run is for: the loss and the metrics of a data set, or the model's outputs.
// The last stage makes an outcome of each micro-batch, and each of the ranks that divide it one of
// its part; an Evaluation puts parts together and adds micro-batches up in their order, so that
// neither the schedule nor the partition nor the division shows in any bit.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "core/model/model.hpp"
#include "exec/base/run_mode.hpp"
#include "exec/runtime/evaluation_report.hpp"
#include "exec/runtime/peers.hpp"

namespace pipewright::exec {

/// Of a row of outputs, or of a part of its columns.
struct RowOutcome {
  std::int32_t row = 0;  // of the whole micro-batch
  float largest = -std::numeric_limits<float>::infinity();
  bool is_label = false;   // it is the label's output; of equal ones the first counts
  bool is_finite = false;  // all outputs are finite numbers
};

/// Of the samples of one micro-batch that count: a data set need not fill its last one.
struct ForwardOutcome {
  int micro_batch = 0;     // of the step's data
  double loss = 0;         // of all ranks' parts, the sum over `terms`
  std::int64_t terms = 0;  // rows; mse: elements
  int first_column = 0;    // of the part of each row's columns that this is of
  std::vector<RowOutcome> rows;
  std::vector<float> outputs;  // predict: of these rows, as the last layer leaves them
};

/// Called with the outputs of a step's samples, in their order.
using OutputSink = std::function<void(std::span<const float> outputs)>;

/// put() may be called by any number of threads at once, each for places of its own; the rest while
/// no other thread uses it.
class Evaluation {
 public:
  /// `places`: of outcomes in a step, one for each micro-batch of each rank that divides the last
  /// stage.
  Evaluation(const Model& model, RunMode mode, int places, OutputSink sink);

  void put(int place, ForwardOutcome outcome);
  /// All outcomes of a step have been put, here or in another process of the run: with `peers`, all
  /// call it, and each of them learns all.
  void end_step(Peers* peers = nullptr);
  EvaluationReport report() const;

 private:
  void collect(Peers& peers);
  void add(std::span<const ForwardOutcome* const> parts);

  const RunMode mode_;
  const LossKind loss_kind_;
  const bool of_text_;
  const int sequence_, width_;
  OutputSink sink_;
  std::vector<ForwardOutcome> outcomes_;  // of the step, by place
  double loss_ = 0;
  std::int64_t terms_ = 0, rows_ = 0, correct_ = 0, not_finite_ = 0;
};

/// Outputs [rows][width], and each row's label; no labels: none is the label's.
std::vector<RowOutcome> outcomes_of_rows(int rows, int width, const float* outputs,
                                         std::span<const std::int32_t> labels);

}  // namespace pipewright::exec
