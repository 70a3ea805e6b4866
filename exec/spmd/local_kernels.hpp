// The kernels of local operators, a source for each kind, and what these share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/spmd/operator_call.hpp"
#include "exec/spmd/local_operators.hpp"

namespace pipewright::exec::graphs {

/// The rows by what their operators do to elements, as core/spmd/operators.hpp sorts them.
std::vector<LocalOperator> pointwise_kernels();
std::vector<LocalOperator> product_kernels();
std::vector<LocalOperator> reducing_kernels();
std::vector<LocalOperator> arranging_kernels();
std::vector<LocalOperator> attention_kernels();
std::vector<LocalOperator> norm_kernels();
std::vector<LocalOperator> choosing_kernels();  // rows of tables, and losses of classes
std::vector<LocalOperator> routing_kernels();   // the largest of a line, and counts

/// Attributes as the operator declares them, and the shapes that this process has.
spmd::Operands operands_of(const LocalCall& call);
/// The same of the whole tensors.
spmd::Operands operands_of(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one);

inline int small(std::int64_t size) { return static_cast<int>(size); }
inline const spmd::Shape& shape_of(const LocalArray* array) { return array->part.shape; }
/// Of the dimensions [first, end).
std::int64_t elements(const spmd::Shape& shape, std::size_t first, std::size_t end);
/// Elements along an axis: where the first one lies, how many there are, and how far apart.
struct Line {
  std::size_t first = 0;
  int count = 0;
  std::size_t stride = 1;
};
/// All lines along the axis in an array of this shape, those before the axis slowest.
std::vector<Line> lines_along(const spmd::Shape& shape, std::size_t axis);
/// nullptr where it is left out.
LocalArray* output_of(const LocalCall& call, std::size_t place);
/// Whole numbers that are kept as floats.
std::vector<std::int32_t> whole_numbers(const LocalArray& array);

/// Numbers that lie `stride` apart become their exponentials' shares of the sum.
void take_shares(float* values, int count, std::size_t stride);
/// From the shares and the gradient of each, the gradient of what they were made of, in its place.
void take_shares_back(const float* shares, float* gradient, int count, std::size_t stride);

}  // namespace pipewright::exec::graphs
