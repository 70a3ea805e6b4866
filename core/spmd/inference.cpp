#include "core/spmd/inference.hpp"

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/spmd/merging.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// The tensors of some arguments one after the other, with their names and places.
struct FlatTensors {
  std::vector<std::string> names, places;
  std::vector<Tensor> tensors;
};

FlatTensors flat(const std::vector<TensorSlot>& slots, const std::vector<TensorArgument>& arguments,
                 bool flat_places) {
  FlatTensors all;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string name(slots[at].name);
    for (std::size_t member = 0; member < arguments[at].tensors.size(); ++member) {
      const bool numbered = slots[at].is_list;
      all.names.push_back(numbered ? name + "[" + std::to_string(member) + "]" : name);
      all.places.push_back(flat_places || !numbered
                               ? std::to_string(all.places.size())
                               : std::to_string(at) + "." + std::to_string(member));
      all.tensors.push_back(arguments[at].tensors[member]);
    }
  }
  return all;
}

std::vector<TensorArgument> arguments_for(const std::vector<TensorSlot>& slots,
                                          const std::vector<TensorArgument>& given,
                                          std::size_t first) {
  std::vector<TensorArgument> taken;
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const TensorArgument& argument = given[first + at];
    if (argument.tensors.empty())
      throw InputError(std::string(slots[at].name) + ": is an empty list");
    if (!slots[at].is_list && argument.tensors.size() != 1) {
      throw InputError(std::string(slots[at].name) + ": is one tensor, found a list of " +
                       std::to_string(argument.tensors.size()));
    }
    taken.push_back(argument);
  }
  return taken;
}

std::string list_of(const std::vector<TensorSlot>& slots) {
  std::string text;
  for (const TensorSlot& slot : slots) text += (text.empty() ? "" : ", ") + std::string(slot.name);
  return text;
}

/// Which tensors of the call are inputs and which outputs.
Operands operands_of(const OperatorCall& call, const Operator& row) {
  const bool with_outputs = call.direction == Direction::Backward || row.outputs_are_given;
  const std::size_t expected = row.inputs.size() + (with_outputs ? row.outputs.size() : 0);
  if (call.tensors.size() != expected) {
    throw InputError("takes " + list_of(row.inputs) +
                     (with_outputs ? ", and with them " + list_of(row.outputs) : "") + ", found " +
                     std::to_string(call.tensors.size()) + " tensors");
  }
  auto inputs = arguments_for(row.inputs, call.tensors, 0);
  auto outputs = with_outputs ? arguments_for(row.outputs, call.tensors, row.inputs.size())
                              : std::vector<TensorArgument>();
  return Operands(std::move(inputs), std::move(outputs), row.attributes, call.attributes);
}

/// A mesh dimension that divides several dimensions of size 1 does so once.
Tensor with_one_claim(const Voice& voice) {
  Tensor tensor = voice.tensor;
  std::set<int> claimed;
  for (std::size_t at = 0; at < std::min(tensor.layout.dims.size(), voice.letters.size()); ++at) {
    if (voice.letters[at] != kSizeOne) continue;
    std::vector<int>& dims = tensor.layout.dims[at];
    dims.erase(std::remove_if(dims.begin(), dims.end(),
                              [&](int dim) { return !claimed.insert(dim).second; }),
               dims.end());
  }
  return tensor;
}

std::vector<Voice> voices_of(const FlatTensors& asked, const std::vector<std::string>& notation,
                             const Equation& equation, const ProcessMesh& mesh) {
  std::vector<std::size_t> heard = equation.heard;
  for (std::size_t at = 0; equation.heard.empty() && at < asked.tensors.size(); ++at) {
    heard.push_back(at);
  }
  std::vector<Voice> voices;
  for (const std::size_t at : heard) {
    const Tensor& tensor = asked.tensors[at];
    if (tensor.shape.empty() && tensor.layout.dims.empty()) continue;
    if (notation[at].size() != tensor.shape.size()) {
      throw InputError(asked.names[at] + ": expected " + std::to_string(notation[at].size()) +
                       " dimensions, found " + std::to_string(tensor.shape.size()));
    }
    voices.push_back({.name = asked.names[at], .letters = notation[at], .tensor = tensor});
    require_layout(with_one_claim(voices.back()), mesh, asked.names[at]);
  }
  return voices;
}

bool stands_in(const std::vector<std::string>& notation, char letter) {
  return std::any_of(notation.begin(), notation.end(), [&](const std::string& tensor) {
    return tensor.find(letter) != std::string::npos;
  });
}

/// What an output leaves to be summed: mesh dimensions that divide letters which it sums.
std::map<int, Reduction> partial_of(const Equation& equation, std::size_t output,
                                    const Division& division) {
  std::string summed;
  if (!equation.summed.empty()) {
    summed = equation.summed[output];
  } else {
    for (const auto& [letter, dims] : division) {
      if (stands_in(equation.inputs, letter) && !stands_in({equation.outputs[output]}, letter)) {
        summed += letter;
      }
    }
  }
  std::map<int, Reduction> partial;
  for (const char letter : summed) {
    const auto found = division.find(letter);
    if (found == division.end()) continue;
    for (const int dim : found->second) partial[dim] = equation.reduction;
  }
  return partial;
}

void require_notation(const std::vector<std::string>& notation, const FlatTensors& tensors) {
  if (notation.size() != tensors.tensors.size()) {
    throw InputError("has " + std::to_string(notation.size()) + " outputs, found " +
                     std::to_string(tensors.tensors.size()));
  }
}

std::vector<PlacedLayout> placed(const std::vector<std::string>& notation,
                                 const FlatTensors& tensors, const Division& division) {
  std::vector<PlacedLayout> layouts;
  for (std::size_t at = 0; at < tensors.tensors.size(); ++at) {
    const bool absent = tensors.tensors[at].shape.empty();
    layouts.push_back({tensors.places[at], divided(absent ? "" : notation[at], division)});
  }
  return layouts;
}

/// A tensor's own, without what another one adds to it.
Division division_of(const Tensor& tensor, const std::string& letters) {
  Division division;
  for (std::size_t axis = 0; axis < std::min(letters.size(), tensor.layout.dims.size()); ++axis) {
    division[letters[axis]] = tensor.layout.dims[axis];
  }
  return division;
}

Inference forward(const Equation& equation, const FlatTensors& inputs, const ProcessMesh& mesh) {
  const Division division =
      merged(equation, voices_of(inputs, equation.inputs, equation, mesh), mesh);
  Inference inference{.inputs = placed(equation.inputs, inputs, division), .outputs = {}};
  for (const std::size_t at : equation.staying) {
    inference.inputs[at].layout = inputs.tensors[at].layout;
    inference.inputs[at].layout.partial.clear();
  }
  for (std::size_t at = 0; at < equation.outputs.size(); ++at) {
    Layout layout = divided(equation.outputs[at], division);
    layout.partial = partial_of(equation, at, division);
    inference.outputs.push_back({std::to_string(at), std::move(layout)});
  }
  for (const auto& [output, input] : equation.from_input_as_it_came) {
    if (equation.outputs[output].empty()) continue;
    const Division own = division_of(inputs.tensors[input], equation.inputs[input]);
    inference.outputs[output].layout = divided(equation.outputs[output], own);
    inference.outputs[output].layout.partial = partial_of(equation, output, own);
  }
  return inference;
}

Inference backward(const Equation& equation, const FlatTensors& inputs, const FlatTensors& outputs,
                   const ProcessMesh& mesh) {
  require_notation(equation.outputs, outputs);
  const Division division =
      merged(equation, voices_of(outputs, equation.outputs, equation, mesh), mesh);
  Inference inference{.inputs = placed(equation.inputs, inputs, division),
                      .outputs = placed(equation.outputs, outputs, division)};
  for (std::size_t at = 0; at < outputs.tensors.size(); ++at) {
    if (!equation.outputs_stay) continue;
    inference.outputs[at].layout = outputs.tensors[at].layout;
    inference.outputs[at].layout.partial.clear();
  }
  return inference;
}

Inference infer_with(const OperatorCall& call, const Operator& row) {
  require_mesh(call.mesh);
  if (call.direction == Direction::Backward && !row.backward_is.empty()) {
    OperatorCall gradient = call;
    gradient.direction = Direction::Forward;
    return infer_with(gradient, operator_named(row.backward_is));
  }
  const Operands operands = operands_of(call, row);
  const FlatTensors inputs = flat(row.inputs, operands.inputs(), row.lists_are_flat);
  const FlatTensors outputs = flat(row.outputs, operands.outputs(), true);
  if (call.direction == Direction::Forward) {
    return forward(row.equation(operands), inputs, call.mesh);
  }
  const auto equation = row.backward != nullptr ? row.backward : row.equation;
  return backward(equation(operands), inputs, outputs, call.mesh);
}

/// Calls `answer` with the operator's row; complaints get the operator's name in front.
template <class Answer>
auto with_name(const OperatorCall& call, Answer answer) {
  const Operator& row = operator_named(call.name);
  try {
    return answer(row);
  } catch (const InputError& error) {
    throw InputError(call.name + ": " + error.message());
  }
}

}  // namespace

Inference infer(const OperatorCall& call) {
  return with_name(call, [&](const Operator& row) { return infer_with(call, row); });
}

Equation equation_of(const OperatorCall& call) {
  return with_name(call, [&](const Operator& row) { return row.equation(operands_of(call, row)); });
}

}  // namespace pipewright::spmd
