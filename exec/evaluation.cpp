#include "exec/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "exec/layer.hpp"
#include "exec/ops.hpp"

namespace pipewright::exec {
namespace {

/// Of equal outputs the first counts.
std::int64_t correct_rows(const OutcomeOf& of) {
  std::int64_t correct = 0;
  for (int row = 0; row < of.counted; ++row) {
    const float* outputs = of.outputs + static_cast<std::ptrdiff_t>(row) * of.width;
    correct += std::max_element(outputs, outputs + of.width) - outputs == of.labels[row] ? 1 : 0;
  }
  return correct;
}

}  // namespace

ForwardOutcome evaluated(const OutcomeOf& of) {
  ForwardOutcome outcome;
  outcome.rows = of.counted;
  if (of.counted == 0) return outcome;
  const LossShape shape{of.counted, of.width};
  if (of.loss == LossKind::SoftmaxCrossEntropy) {
    outcome.correct = correct_rows(of);
    outcome.loss = softmax_cross_entropy_forward(shape, of.outputs, of.labels, of.scratch);
    outcome.terms = of.counted;
  } else {
    outcome.loss = mse_forward(shape, of.outputs, of.targets);
    outcome.terms = std::int64_t{of.counted} * of.width;
  }
  return outcome;
}

ForwardOutcome predicted(const OutcomeOf& of) {
  ForwardOutcome outcome;
  outcome.rows = of.counted;
  outcome.outputs.assign(of.outputs,
                         of.outputs + static_cast<std::ptrdiff_t>(of.counted) * of.width);
  return outcome;
}

Evaluation::Evaluation(const Model& model, RunMode mode, int micro_batches, OutputSink sink)
    : mode_(mode),
      loss_kind_(model.loss),
      of_text_(width_in_front_of(model, 0) == 0),
      sequence_(model.sequence),
      sink_(std::move(sink)),
      outcomes_(static_cast<std::size_t>(micro_batches)) {}

void Evaluation::put(int micro_batch, ForwardOutcome outcome) {
  outcomes_.at(static_cast<std::size_t>(micro_batch)) = std::move(outcome);
}

/// Of each micro-batch one process has the outcome.
void Evaluation::collect(Peers& peers) {
  Packer packer;
  for (std::size_t m = 0; m < outcomes_.size(); ++m) {
    const ForwardOutcome& outcome = outcomes_[m];
    if (outcome.rows == 0) continue;
    packer.put<std::uint64_t>(m);
    packer.put<double>(outcome.loss);
    for (const std::int64_t number : {outcome.terms, outcome.rows, outcome.correct})
      packer.put<std::int64_t>(number);
    packer.put_all<float>(outcome.outputs);
  }
  const std::vector<Bytes> all = peers.share(packer.take());
  for (std::size_t process = 0; process < all.size(); ++process) {
    if (static_cast<int>(process) == peers.process()) continue;
    Unpacker unpacker(all[process]);
    while (!unpacker.empty()) {
      ForwardOutcome& outcome = outcomes_.at(unpacker.get<std::uint64_t>());
      outcome.loss = unpacker.get<double>();
      outcome.terms = unpacker.get<std::int64_t>();
      outcome.rows = unpacker.get<std::int64_t>();
      outcome.correct = unpacker.get<std::int64_t>();
      outcome.outputs = unpacker.get_all<float>();
    }
  }
}

void Evaluation::end_step(Peers* peers) {
  if (peers != nullptr) collect(*peers);
  for (ForwardOutcome& outcome : outcomes_) {
    loss_ += outcome.loss;
    terms_ += outcome.terms;
    rows_ += outcome.rows;
    correct_ += outcome.correct;
    if (sink_ && !outcome.outputs.empty()) sink_(outcome.outputs);
    outcome = {};
  }
}

EvaluationReport Evaluation::report() const {
  EvaluationReport report;
  report.samples = rows_ / sequence_;
  if (mode_ != RunMode::Evaluate || terms_ == 0) return report;
  report.loss = loss_ / static_cast<double>(terms_);
  if (loss_kind_ != LossKind::SoftmaxCrossEntropy) return report;
  report.accuracy = static_cast<double>(correct_) / static_cast<double>(rows_);
  if (of_text_) report.perplexity = std::exp(*report.loss);
  return report;
}

}  // namespace pipewright::exec
