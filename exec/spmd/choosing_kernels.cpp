// Rows that ids choose from a table, and the losses of classes that labels choose.
#include <algorithm>
#include <limits>

#include "exec/layers/ops.hpp"
#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

TokenRange rows_here(const LocalArray& table, int most) {
  return {.first = small(table.part.offset[0]),
          .count = small(table.part.shape[0]),
          .vocabulary = most};
}

EmbeddingShape looked_up_shape(const LocalCall& call) {
  return {.rows = small(static_cast<std::int64_t>(call.inputs[0]->values.size())),
          .width = small(call.inputs[1]->part.shape[1])};
}

void look_up_rows(const LocalCall& call) {
  const auto ids = whole_numbers(*call.inputs[0]);
  const TokenRange rows = rows_here(*call.inputs[1], (1 << 24));
  look_up(looked_up_shape(call), rows, true, ids.data(), call.inputs[1]->values.data(),
          call.outputs[0]->values.data());
}

void look_up_rows_back(const LocalCall& call) {
  if (call.gradients[1] == nullptr) return;
  const auto ids = whole_numbers(*call.inputs[0]);
  look_up_backward_weight(looked_up_shape(call), rows_here(*call.inputs[1], (1 << 24)), ids.data(),
                          call.of_outputs[0]->values.data(), call.gradients[1]->values.data(),
                          nullptr);
}

LogitsPart logits_part(const LocalCall& call) {
  const spmd::LocalPart& logits = call.inputs[0]->part;
  LogitsPart part;
  part.own = {.rows = small(elements(logits.shape, 0, logits.shape.size() - 1)),
              .width = small(logits.shape.back())};
  part.first = small(logits.offset.back());
  part.member = call.classes == nullptr ? 0 : call.classes->member();
  part.members = call.classes == nullptr ? 1 : call.classes->members();
  return part;
}

void sum_in(collectives::Group* group, std::vector<float>& values) {
  if (group == nullptr) return;
  static_cast<void>(group->all_reduce(collectives::Summands(std::span(values), Numerics::Fast)));
}

/// A process that has no classes, because there are fewer parts than processes, has no largest.
void tell_nothing(const LogitsPart& part, std::vector<float>& facts) {
  const std::size_t row = sized(part.members) + 1;
  for (std::size_t at = sized(part.member); at < facts.size(); at += row) {
    facts[at] = std::numeric_limits<float>::lowest();
  }
}

void cross_entropy(const LocalCall& call) {
  const LogitsPart part = logits_part(call);
  const auto labels = whole_numbers(*call.inputs[1]);
  std::vector<float> facts(sized(std::int64_t{part.own.rows} * (part.members + 1)));
  std::vector<float> sums(sized(std::int64_t{part.own.rows} * kLossLanes));
  std::vector<double> losses(sized(part.own.rows));
  float* shares = call.outputs[0]->values.data();
  if (part.own.width == 0) {
    tell_nothing(part, facts);
  } else {
    tell_logits(part, call.inputs[0]->values.data(), labels.data(), facts.data());
  }
  sum_in(call.classes, facts);
  add_exponentials(part, call.inputs[0]->values.data(), facts.data(), shares, sums.data());
  sum_in(call.classes, sums);
  static_cast<void>(finish_cross_entropy(part, facts.data(), sums.data(), shares, losses.data()));
  std::copy(losses.begin(), losses.end(), call.outputs[1]->values.begin());
}

void cross_entropy_back(const LocalCall& call) {
  if (call.gradients[0] == nullptr || call.of_outputs[1] == nullptr) return;
  const LogitsPart part = logits_part(call);
  const auto labels = whole_numbers(*call.inputs[1]);
  const float* shares = call.outputs[0]->values.data();
  float* gradient = call.gradients[0]->values.data();
  for (int row = 0; row < part.own.rows; ++row) {
    const float scale = call.of_outputs[1]->values[sized(row)];
    for (int j = 0; j < part.own.width; ++j, ++shares, ++gradient) {
      const bool is_label = labels[sized(row)] == part.first + j;
      *gradient += scale * (is_label ? *shares - 1.0F : *shares);
    }
  }
}

const char* padding_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  const bool has_none = operands_of(graph, one).integer("padding_idx") == -1;
  return has_none ? nullptr : "without rows of padding";
}

const char* loss_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  const spmd::Operands operands = operands_of(graph, one);
  const std::size_t rank = operands.rank();
  const bool plain = !operands.boolean("soft_label") && operands.boolean("use_softmax") &&
                     operands.axis("axis", rank) + 1 == rank;
  return plain ? nullptr : "with a label for each row, its classes last";
}

}  // namespace

std::vector<LocalOperator> choosing_kernels() {
  return {
      {.rule = "c_softmax_with_cross_entropy",
       .forward = cross_entropy,
       .backward = cross_entropy_back,
       .differentiated = 1},
      {.rule = "cross_entropy_with_softmax",
       .forward = cross_entropy,
       .backward = cross_entropy_back,
       .differentiated = 1,
       .refusal = loss_refusal},
      {.rule = "embedding",
       .forward = look_up_rows,
       .backward = look_up_rows_back,
       .refusal = padding_refusal},
  };
}

}  // namespace pipewright::exec::graphs
