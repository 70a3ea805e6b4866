// Sums and means, and shares along a dimension.
#include <algorithm>

#include "exec/spmd/broadcast_places.hpp"
#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

/// The output with size 1 where a dimension has gone, so that its elements are those of a
/// broadcast.
spmd::Shape kept_shape(const LocalCall& call) {
  spmd::Shape kept = shape_of(call.inputs[0]);
  const std::vector<std::size_t> axes = operands_of(call).axes("axis", kept.size());
  for (const std::size_t axis : axes) kept[axis] = 1;
  if (axes.empty()) std::fill(kept.begin(), kept.end(), 1);
  return kept;
}

/// Of a mean: of the elements that this process has of each.
float share(const LocalCall& call) {
  if (call.one.rule != "mean") return 1;
  const spmd::Shape& shape = shape_of(call.inputs[0]);
  const spmd::Shape kept = kept_shape(call);
  return static_cast<float>(elements(kept, 0, kept.size())) /
         static_cast<float>(elements(shape, 0, shape.size()));
}

void sum_over(const LocalCall& call) {
  const BroadcastPlaces out(kept_shape(call), shape_of(call.inputs[0]));
  std::vector<double> sums(call.outputs[0]->values.size());
  for (std::size_t i = 0; i < call.inputs[0]->values.size(); ++i) {
    sums[out.at(i)] += static_cast<double>(call.inputs[0]->values[i]);
  }
  const float factor = share(call);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    call.outputs[0]->values[i] = static_cast<float>(sums[i]) * factor;
  }
}

void sum_over_back(const LocalCall& call) {
  const BroadcastPlaces out(kept_shape(call), shape_of(call.inputs[0]));
  const float factor = share(call);
  for (std::size_t i = 0; i < call.gradients[0]->values.size(); ++i) {
    call.gradients[0]->values[i] += factor * call.of_outputs[0]->values[out.at(i)];
  }
}

std::vector<Line> lines_of(const LocalCall& call) {
  const spmd::Shape& shape = shape_of(call.inputs[0]);
  return lines_along(shape, operands_of(call).axis("axis", shape.size()));
}

void softmax(const LocalCall& call) {
  std::vector<float>& values = call.outputs[0]->values;
  values = call.inputs[0]->values;
  for (const Line& line : lines_of(call)) {
    take_shares(values.data() + line.first, line.count, line.stride);
  }
}

void softmax_back(const LocalCall& call) {
  std::vector<float> gradient = call.of_outputs[0]->values;
  for (const Line& line : lines_of(call)) {
    take_shares_back(call.outputs[0]->values.data() + line.first, gradient.data() + line.first,
                     line.count, line.stride);
  }
  for (std::size_t i = 0; i < gradient.size(); ++i) call.gradients[0]->values[i] += gradient[i];
}

}  // namespace

std::vector<LocalOperator> reducing_kernels() {
  return {{.rule = "mean", .forward = sum_over, .backward = sum_over_back},
          {.rule = "softmax", .forward = softmax, .backward = softmax_back},
          {.rule = "sum", .forward = sum_over, .backward = sum_over_back}};
}

}  // namespace pipewright::exec::graphs
