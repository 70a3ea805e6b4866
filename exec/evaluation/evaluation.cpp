#include "exec/evaluation/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cpu/kernels/finite.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec {

std::vector<RowOutcome> outcomes_of_rows(int rows, int width, const float* outputs,
                                         std::span<const std::int32_t> labels) {
  std::vector<RowOutcome> all;
  for (int r = 0; r < rows; ++r, outputs += width) {
    const std::span row(outputs, static_cast<std::size_t>(width));
    const auto largest = std::max_element(row.begin(), row.end());
    const bool is_label =
        !labels.empty() && largest - row.begin() == labels[static_cast<std::size_t>(r)];
    all.push_back(
        {.row = r, .largest = *largest, .is_label = is_label, .is_finite = cpu::all_finite(row)});
  }
  return all;
}

Evaluation::Evaluation(const Model& model, RunMode mode, int places, OutputSink sink)
    : mode_(mode),
      loss_kind_(model.loss),
      of_text_(width_in_front_of(model, 0) == 0),
      sequence_(model.sequence),
      width_(width_in_front_of(model, static_cast<int>(model.layers.size()))),
      sink_(std::move(sink)),
      outcomes_(static_cast<std::size_t>(places)) {}

void Evaluation::put(int place, ForwardOutcome outcome) {
  outcomes_.at(static_cast<std::size_t>(place)) = std::move(outcome);
}

/// Each outcome is in one process only.
void Evaluation::collect(Peers& peers) {
  Packer packer;
  for (std::size_t place = 0; place < outcomes_.size(); ++place) {
    const ForwardOutcome& outcome = outcomes_[place];
    if (outcome.rows.empty()) continue;
    packer.put<std::uint64_t>(place);
    packer.put<std::int32_t>(outcome.micro_batch);
    packer.put<double>(outcome.loss);
    packer.put<std::int64_t>(outcome.terms);
    packer.put<std::int32_t>(outcome.first_column);
    packer.put_all<RowOutcome>(outcome.rows);
    packer.put_all<float>(outcome.outputs);
  }
  const std::vector<PackedBytes> all = peers.share(packer.take());
  for (std::size_t process = 0; process < all.size(); ++process) {
    if (static_cast<int>(process) == peers.process()) continue;
    Unpacker unpacker(all[process]);
    while (!unpacker.empty()) {
      ForwardOutcome& outcome = outcomes_.at(unpacker.get<std::uint64_t>());
      outcome.micro_batch = unpacker.get<std::int32_t>();
      outcome.loss = unpacker.get<double>();
      outcome.terms = unpacker.get<std::int64_t>();
      outcome.first_column = unpacker.get<std::int32_t>();
      outcome.rows = unpacker.get_all<RowOutcome>();
      outcome.outputs = unpacker.get_all<float>();
    }
  }
}

/// Of one micro-batch, whose columns come in ascending order. A row that is not finite is never
/// correct.
void Evaluation::add(std::span<const ForwardOutcome* const> parts) {
  std::vector<RowOutcome> rows;
  std::vector<float> outputs;
  const auto width = static_cast<std::size_t>(width_);
  for (const ForwardOutcome* const part : parts) {
    const std::size_t columns = part->rows.empty() ? 0 : part->outputs.size() / part->rows.size();
    for (std::size_t i = 0; i < part->rows.size(); ++i) {
      const RowOutcome& own = part->rows[i];
      const auto at = static_cast<std::size_t>(own.row);
      if (rows.size() <= at) rows.resize(at + 1, {.is_finite = true});
      RowOutcome& row = rows[at];
      row.is_finite = row.is_finite && own.is_finite;
      if (own.largest > row.largest) {
        row.largest = own.largest;
        row.is_label = own.is_label;
      }
      if (columns == 0) continue;
      outputs.resize(std::max(outputs.size(), (at + 1) * width));
      std::copy_n(part->outputs.begin() + static_cast<std::ptrdiff_t>(i * columns), columns,
                  outputs.begin() + static_cast<std::ptrdiff_t>(at * width) + part->first_column);
    }
  }
  loss_ += parts.front()->loss;
  terms_ += parts.front()->terms;
  rows_ += static_cast<std::int64_t>(rows.size());
  for (const RowOutcome& row : rows) {
    correct_ += row.is_finite && row.is_label ? 1 : 0;
    not_finite_ += row.is_finite ? 0 : 1;
  }
  if (sink_ && !outputs.empty()) sink_(outputs);
}

void Evaluation::end_step(Peers* peers) {
  if (peers != nullptr) collect(*peers);
  std::map<int, std::vector<const ForwardOutcome*>> parts;  // by micro-batch
  for (const ForwardOutcome& outcome : outcomes_)
    if (!outcome.rows.empty()) parts[outcome.micro_batch].push_back(&outcome);
  for (auto& [micro_batch, of_it] : parts) {
    std::ranges::stable_sort(of_it, {}, &ForwardOutcome::first_column);
    add(of_it);
  }
  for (ForwardOutcome& outcome : outcomes_) outcome = {};
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
