#include "exec/evaluation/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cpu/kernels/finite.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

std::span<const float> row_of(const OutcomeOf& of, int row) {
  return {of.outputs + static_cast<std::ptrdiff_t>(row) * of.width,
          static_cast<std::size_t>(of.width)};
}

/// Of equal outputs the first counts. A row with an output that is not finite is never correct.
std::int64_t correct_rows(const OutcomeOf& of) {
  std::int64_t correct = 0;
  for (int row = 0; row < of.counted; ++row) {
    const auto outputs = row_of(of, row);
    const auto largest = std::max_element(outputs.begin(), outputs.end()) - outputs.begin();
    correct += largest == of.labels[row] && cpu::all_finite(outputs) ? 1 : 0;
  }
  return correct;
}

std::int64_t not_finite_rows(const OutcomeOf& of) {
  std::int64_t count = 0;
  for (int row = 0; row < of.counted; ++row) count += cpu::all_finite(row_of(of, row)) ? 0 : 1;
  return count;
}

}  // namespace

ForwardOutcome evaluated(const OutcomeOf& of) {
  ForwardOutcome outcome;
  outcome.rows = of.counted;
  outcome.not_finite = not_finite_rows(of);
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
  outcome.not_finite = not_finite_rows(of);
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

/// The outcome of a micro-batch is in one process only.
void Evaluation::collect(Peers& peers) {
  Packer packer;
  for (std::size_t m = 0; m < outcomes_.size(); ++m) {
    const ForwardOutcome& outcome = outcomes_[m];
    if (outcome.rows == 0) continue;
    packer.put<std::uint64_t>(m);
    packer.put<double>(outcome.loss);
    for (const std::int64_t number :
         {outcome.terms, outcome.rows, outcome.correct, outcome.not_finite})
      packer.put<std::int64_t>(number);
    packer.put_all<float>(outcome.outputs);
  }
  const std::vector<PackedBytes> all = peers.share(packer.take());
  for (std::size_t process = 0; process < all.size(); ++process) {
    if (static_cast<int>(process) == peers.process()) continue;
    Unpacker unpacker(all[process]);
    while (!unpacker.empty()) {
      ForwardOutcome& outcome = outcomes_.at(unpacker.get<std::uint64_t>());
      outcome.loss = unpacker.get<double>();
      outcome.terms = unpacker.get<std::int64_t>();
      outcome.rows = unpacker.get<std::int64_t>();
      outcome.correct = unpacker.get<std::int64_t>();
      outcome.not_finite = unpacker.get<std::int64_t>();
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
    not_finite_ += outcome.not_finite;
    if (sink_ && !outcome.outputs.empty()) sink_(outcome.outputs);
    outcome = {};
  }
}

EvaluationReport Evaluation::report() const {
  EvaluationReport report;
  report.samples = rows_ / sequence_;
  report.rows = rows_;
  report.not_finite_rows = not_finite_;
  if (mode_ != RunMode::Evaluate || terms_ == 0) return report;
  report.loss = loss_ / static_cast<double>(terms_);
  if (loss_kind_ != LossKind::SoftmaxCrossEntropy) return report;
  report.accuracy = static_cast<double>(correct_) / static_cast<double>(rows_);
  if (of_text_) report.perplexity = std::exp(*report.loss);
  return report;
}

}  // namespace pipewright::exec
