// Whether an operator's tensors fit it: what its equation says of their sizes.
#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "core/spmd/graph/rule_answers.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// Letters that stand for the same number of elements wherever they stand.
bool keeps_its_size(char letter, const Equation& equation) {
  return letter != kUndivided && letter != kSizeOne &&
         equation.whole.find(letter) == std::string::npos;
}

/// Heads of keys are fewer than those of queries that share their letter: then it is these that
/// divide evenly.
bool stands_for_groups(char letter, std::int64_t size, const Equation& equation) {
  const std::pair<char, std::int64_t> evenly = {letter, size};
  return std::find(equation.even.begin(), equation.even.end(), evenly) != equation.even.end();
}

std::map<char, std::int64_t> sizes_by_letter(const OperatorGraph& graph, const GraphOperator& one,
                                             const Equation& equation) {
  std::map<char, std::int64_t> sizes;
  const auto tensors = tensors_of(one.inputs);
  for (std::size_t at = 0; at < std::min(tensors.size(), equation.inputs.size()); ++at) {
    if (!tensors[at]) continue;
    const Shape& shape = graph.tensors[*tensors[at]].shape;
    if (shape.size() != equation.inputs[at].size()) {
      throw InputError(one.rule + ": \"" + graph.tensors[*tensors[at]].name + "\" has " +
                       std::to_string(shape.size()) + " dimensions, expected " +
                       std::to_string(equation.inputs[at].size()));
    }
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const char letter = equation.inputs[at][axis];
      if (!keeps_its_size(letter, equation)) continue;
      const auto [known, fresh] = sizes.emplace(letter, shape[axis]);
      const bool fits =
          known->second == shape[axis] || stands_for_groups(letter, shape[axis], equation);
      if (!fresh && !fits) {
        throw InputError(one.rule + ": \"" + graph.tensors[*tensors[at]].name + "\": dimension " +
                         std::to_string(axis) + " has " + std::to_string(shape[axis]) +
                         " elements, and another input " + std::to_string(known->second) +
                         " in the same dimension");
      }
    }
  }
  return sizes;
}

bool only_regroups(std::string_view rule) {
  const auto rows = regrouping_operators();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Operator& row) { return row.name == rule; });
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

[[noreturn]] void refuse_output(const GraphOperator& one, const GraphTensor& tensor,
                                const std::string& why) {
  throw InputError(one.rule + ": its output \"" + tensor.name + "\" " + why);
}

/// The same elements in another shape, and in that which reshape is asked for.
void require_regrouped(const GraphOperator& one, const GraphTensor& in, const GraphTensor& out) {
  if (element_count(in.shape) != element_count(out.shape)) {
    refuse_output(one, out,
                  "has " + std::to_string(element_count(out.shape)) + " elements, and \"" +
                      in.name + "\" " + std::to_string(element_count(in.shape)));
  }
  if (one.rule != "reshape" || one.attributes.empty()) return;
  const auto* asked = std::get_if<std::vector<std::int64_t>>(&one.attributes.front());
  for (std::size_t axis = 0; asked != nullptr && axis < asked->size(); ++axis) {
    if ((*asked)[axis] > 0 && (*asked)[axis] != out.shape[axis]) {
      refuse_output(one, out,
                    "has " + std::to_string(out.shape[axis]) + " elements in dimension " +
                        std::to_string(axis) + ", and is asked to have " +
                        std::to_string((*asked)[axis]));
    }
  }
}

void require_output(const GraphOperator& one, const GraphTensor& tensor,
                    const std::string& notation, const std::map<char, std::int64_t>& sizes) {
  for (std::size_t axis = 0; axis < notation.size(); ++axis) {
    const auto known = sizes.find(notation[axis]);
    if (known == sizes.end() || known->second == tensor.shape[axis]) continue;
    refuse_output(one, tensor,
                  "has " + std::to_string(tensor.shape[axis]) + " elements in dimension " +
                      std::to_string(axis) + ", and is made of " + std::to_string(known->second));
  }
}

}  // namespace

void require_shapes(const OperatorGraph& graph, const GraphOperator& one) {
  const OperatorCall call =
      call_of(graph, one, Direction::Forward, ProcessMesh::of_shape({1}),
              whole_layouts(graph, one.inputs), whole_layouts(graph, one.outputs));
  (void)infer(call);
  if (operator_named(one.rule).outputs_are_given) return;
  const Equation equation = equation_of(call);
  const auto sizes = sizes_by_letter(graph, one, equation);
  const auto inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
  const bool has_list = operator_named(one.rule).outputs.front().is_list;
  if (outputs.size() > equation.outputs.size() ||
      (has_list && outputs.size() != equation.outputs.size())) {
    throw InputError(one.rule + ": has " + std::to_string(equation.outputs.size()) +
                     " outputs, found " + std::to_string(outputs.size()));
  }
  for (std::size_t at = 0; at < outputs.size(); ++at) {
    if (!outputs[at]) continue;
    const GraphTensor& tensor = graph.tensors[*outputs[at]];
    const std::string& notation = equation.outputs[at];
    if (notation.size() != tensor.shape.size()) {
      refuse_output(one, tensor,
                    "has " + std::to_string(tensor.shape.size()) + " dimensions, expected " +
                        std::to_string(notation.size()));
    }
    if (only_regroups(one.rule)) {
      require_regrouped(one, graph.tensors[*inputs.front()], tensor);
    } else {
      require_output(one, tensor, notation, sizes);
    }
  }
}

}  // namespace pipewright::spmd
