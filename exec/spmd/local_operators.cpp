#include "exec/spmd/local_operators.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/spmd/operators.hpp"
#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

const std::map<std::string_view, LocalOperator>& operator_table() {
  static const std::map<std::string_view, LocalOperator> table = [] {
    std::map<std::string_view, LocalOperator> rows;
    for (auto* kernels : {pointwise_kernels, product_kernels, reducing_kernels, arranging_kernels,
                          attention_kernels, norm_kernels, choosing_kernels, routing_kernels}) {
      for (const LocalOperator& row : kernels()) rows.emplace(row.rule, row);
    }
    return rows;
  }();
  return table;
}

[[noreturn]] void refuse(const spmd::GraphOperator& one, const std::string& why) {
  throw InputError("operator \"" + one.name + "\" (" + one.rule + "): " + why);
}

template <class ShapeOf>
std::vector<spmd::TensorArgument> arguments(const std::vector<spmd::GraphArgument>& given,
                                            ShapeOf shape_of_next) {
  std::vector<spmd::TensorArgument> result;
  for (const spmd::GraphArgument& argument : given) {
    result.push_back({.tensors = {}, .is_list = argument.is_list});
    for (const auto& tensor : argument.tensors) {
      result.back().tensors.push_back({shape_of_next(tensor), {}});
    }
  }
  return result;
}

spmd::Operands operands_with(const spmd::GraphOperator& one,
                             std::vector<spmd::TensorArgument> inputs) {
  return {std::move(inputs), {}, spmd::operator_named(one.rule).attributes, one.attributes};
}

bool are_there(const std::vector<spmd::GraphArgument>& arguments, std::size_t first,
               std::size_t declared) {
  const auto tensors = tensors_of(arguments);
  const std::size_t needed = std::min(first, std::max(tensors.size(), declared));
  return tensors.size() >= needed &&
         std::all_of(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(needed),
                     [](const auto& tensor) { return tensor.has_value(); });
}

}  // namespace

const LocalFunction* function_of(const spmd::GraphOperator& one, const LocalFunctions& functions) {
  if (one.rule != spmd::kLocalMap) return nullptr;
  const auto* name =
      one.attributes.empty() ? nullptr : std::get_if<std::string>(&one.attributes.front());
  if (name == nullptr) refuse(one, "the name of a function is its first attribute");
  if (const auto found = functions.find(*name); found != functions.end()) return &found->second;
  std::vector<std::string_view> names;
  for (const auto& [known, function] : functions) names.push_back(known);
  refuse(one, "no function \"" + *name + "\" is given" + did_you_mean(*name, names) +
                  "; a program that trains the graph gives it (GraphTrainingOptions::functions)");
}

const LocalOperator& local_operator(const spmd::GraphOperator& one) {
  const auto found = operator_table().find(one.rule);
  if (found != operator_table().end()) return found->second;
  std::string known;
  for (const std::string_view rule : local_operator_names()) {
    known += (known.empty() ? "" : ", ") + std::string(rule);
  }
  refuse(one, "is not computed here; these are: " + known);
}

std::vector<std::string_view> local_operator_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, row] : operator_table()) names.push_back(name);
  return names;
}

void require_local(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  const LocalOperator& row = local_operator(one);
  const spmd::Operator& declared = spmd::operator_named(one.rule);
  if (!are_there(one.inputs, row.inputs, declared.inputs.size()) ||
      !are_there(one.outputs, row.outputs, declared.outputs.size())) {
    refuse(one, "is computed here with all of its tensors alone");
  }
  if (row.refusal == nullptr) return;
  if (const char* only = row.refusal(graph, one)) {
    refuse(one, std::string("is computed here ") + only);
  }
}

spmd::Operands operands_of(const LocalCall& call) {
  std::size_t place = 0;
  return operands_with(call.one, arguments(call.one.inputs, [&](const auto&) {
                         const LocalArray* array = call.inputs[place++];
                         return array == nullptr ? spmd::Shape() : array->part.shape;
                       }));
}

spmd::Operands operands_of(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  return operands_with(one, arguments(one.inputs, [&](const auto& tensor) {
                         return tensor ? graph.tensors[*tensor].shape : spmd::Shape();
                       }));
}

std::int64_t elements(const spmd::Shape& shape, std::size_t first, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t at = first; at < end; ++at) product *= shape[at];
  return product;
}

std::vector<Line> lines_along(const spmd::Shape& shape, std::size_t axis) {
  const std::size_t before = sized(elements(shape, 0, axis));
  const std::size_t stride = sized(elements(shape, axis + 1, shape.size()));
  std::vector<Line> lines;
  for (std::size_t outer = 0; outer < before; ++outer) {
    for (std::size_t inner = 0; inner < stride; ++inner) {
      lines.push_back({outer * sized(shape[axis]) * stride + inner, small(shape[axis]), stride});
    }
  }
  return lines;
}

LocalArray* output_of(const LocalCall& call, std::size_t place) {
  return place < call.outputs.size() ? call.outputs[place] : nullptr;
}

std::vector<std::int32_t> whole_numbers(const LocalArray& array) {
  std::vector<std::int32_t> numbers;
  for (const float value : array.values) numbers.push_back(static_cast<std::int32_t>(value));
  return numbers;
}

void take_shares(float* values, int count, std::size_t stride) {
  float largest = values[0];
  double sum = 0;
  for (int i = 1; i < count; ++i) largest = std::max(largest, values[sized(i) * stride]);
  for (int i = 0; i < count; ++i) {
    float& value = values[sized(i) * stride];
    value = std::exp(value - largest);
    sum += static_cast<double>(value);
  }
  for (int i = 0; i < count; ++i) {
    float& value = values[sized(i) * stride];
    value = static_cast<float>(static_cast<double>(value) / sum);
  }
}

void take_shares_back(const float* shares, float* gradient, int count, std::size_t stride) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const std::size_t at = sized(i) * stride;
    sum += static_cast<double>(shares[at]) * static_cast<double>(gradient[at]);
  }
  for (int i = 0; i < count; ++i) {
    const std::size_t at = sized(i) * stride;
    gradient[at] = static_cast<float>(static_cast<double>(shares[at]) *
                                      (static_cast<double>(gradient[at]) - sum));
  }
}

}  // namespace pipewright::exec::graphs
