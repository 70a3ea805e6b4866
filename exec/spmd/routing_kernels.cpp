// What sends rows to the experts of a mixture: the largest of a line and where they are, whole
// numbers as lines with a one in their place, and sums so far, which count.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

/// Nothing depends on the input smoothly.
void no_gradient(const LocalCall&) {}

/// The places in a line of its first `count` elements by size; of equal ones the earlier.
std::vector<int> first_places(const float* values, const Line& line, int count, bool largest) {
  const auto value = [&](int place) { return values[line.first + sized(place) * line.stride]; };
  const auto before = [&](int one, int other) {
    const float x = value(one), y = value(other);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && (!std::isnan(y) || one < other);
    if (x != y) return largest ? x > y : x < y;
    return one < other;
  };
  std::vector<int> places(sized(line.count));
  std::iota(places.begin(), places.end(), 0);
  std::partial_sort(places.begin(), places.begin() + count, places.end(), before);
  places.resize(sized(count));
  return places;
}

/// Calls act(where it lies in the input, where in the output, its place in the line) for each
/// element that is among the first.
template <class Act>
void for_each_first(const LocalCall& call, const spmd::Shape& output, Act act) {
  const spmd::Operands operands = operands_of(call);
  const spmd::Shape& shape = shape_of(call.inputs[0]);
  const std::size_t axis = operands.axis("axis", shape.size());
  const std::vector<Line> from = lines_along(shape, axis), to = lines_along(output, axis);
  for (std::size_t at = 0; at < from.size(); ++at) {
    const std::vector<int> places = first_places(call.inputs[0]->values.data(), from[at],
                                                 to[at].count, operands.boolean("largest"));
    for (std::size_t i = 0; i < places.size(); ++i) {
      act(from[at].first + sized(places[i]) * from[at].stride, to[at].first + i * to[at].stride,
          places[i]);
    }
  }
}

void take_first(const LocalCall& call) {
  LocalArray* indices = output_of(call, 1);
  for_each_first(call, shape_of(call.outputs[0]), [&](std::size_t from, std::size_t to, int place) {
    call.outputs[0]->values[to] = call.inputs[0]->values[from];
    if (indices != nullptr) indices->values[to] = static_cast<float>(place);
  });
}

void take_first_back(const LocalCall& call) {
  for_each_first(call, shape_of(call.of_outputs[0]), [&](std::size_t from, std::size_t to, int) {
    call.gradients[0]->values[from] += call.of_outputs[0]->values[to];
  });
}

const char* first_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  const spmd::Operands operands = operands_of(graph, one);
  const std::size_t axis = operands.axis("axis", operands.rank());
  const std::int64_t count = operands.integer("k");
  bool fits = count >= 1 && count <= operands.shape()[axis];
  for (const auto& output : tensors_of(one.outputs)) {
    fits = fits && (!output || graph.tensors[*output].shape[axis] == count);
  }
  return fits ? nullptr : "where its outputs have k elements along its axis, and x as many or more";
}

/// Along "axis"; with "flatten" all elements are one line.
std::vector<Line> lines_or_all(const LocalCall& call) {
  const spmd::Operands operands = operands_of(call);
  const spmd::Shape& shape = shape_of(call.inputs[0]);
  if (operands.boolean("flatten")) return lines_along({elements(shape, 0, shape.size())}, 0);
  return lines_along(shape, operands.axis("axis", shape.size()));
}

void place_of_largest(const LocalCall& call) {
  const std::vector<Line> lines = lines_or_all(call);
  for (std::size_t at = 0; at < lines.size(); ++at) {
    call.outputs[0]->values[at] =
        static_cast<float>(first_places(call.inputs[0]->values.data(), lines[at], 1, true).front());
  }
}

/// A number that is none of the classes has none of them.
void ones_in_place(const LocalCall& call) {
  const std::int64_t classes = shape_of(call.outputs[0]).back();
  const auto numbers = whole_numbers(*call.inputs[0]);
  for (std::size_t at = 0; at < numbers.size(); ++at) {
    if (numbers[at] < 0 || numbers[at] >= classes) continue;
    call.outputs[0]->values[at * sized(classes) + sized(numbers[at])] = 1;
  }
}

/// Adds to each element of `to` the sum of those before it, and of its own unless `exclusive`.
void add_sums_so_far(const LocalCall& call, const LocalArray& from, LocalArray& to, bool reverse) {
  const bool exclusive = operands_of(call).boolean("exclusive");
  for (const Line& line : lines_or_all(call)) {
    double sum = 0;
    for (int i = 0; i < line.count; ++i) {
      const int place = reverse ? line.count - 1 - i : i;
      const std::size_t at = line.first + sized(place) * line.stride;
      const double own = static_cast<double>(from.values[at]);
      to.values[at] += static_cast<float>(exclusive ? sum : sum + own);
      sum += own;
    }
  }
}

void sums_so_far(const LocalCall& call) {
  add_sums_so_far(call, *call.inputs[0], *call.outputs[0], operands_of(call).boolean("reverse"));
}

/// An element is in the sums from its own on.
void sums_so_far_back(const LocalCall& call) {
  add_sums_so_far(call, *call.of_outputs[0], *call.gradients[0],
                  !operands_of(call).boolean("reverse"));
}

}  // namespace

std::vector<LocalOperator> routing_kernels() {
  return {
      {.rule = "argmax", .forward = place_of_largest, .backward = no_gradient},
      {.rule = "cumsum", .forward = sums_so_far, .backward = sums_so_far_back},
      {.rule = "one_hot", .forward = ones_in_place, .backward = no_gradient},
      {.rule = "topk",
       .forward = take_first,
       .backward = take_first_back,
       .differentiated = 0,
       .outputs = 1,
       .refusal = first_refusal},
  };
}

}  // namespace pipewright::exec::graphs
