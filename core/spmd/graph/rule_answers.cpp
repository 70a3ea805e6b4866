#include "core/spmd/graph/rule_answers.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

std::vector<Layout>& heard_of(RuleAnswer& answer) {
  return answer.direction == Direction::Forward ? answer.inputs : answer.outputs;
}

Inference inferred(const OperatorOnMesh& one, const RuleAnswer& answer) {
  return infer(
      call_of(one.graph, one.row(), answer.direction, one.mesh, answer.inputs, answer.outputs));
}

/// Whether the rule answers, and leaves binding inputs as they are.
bool is_accepted(const OperatorOnMesh& one, const RuleAnswer& answer,
                 const std::vector<Weight>& weights) {
  try {
    const Inference inference = inferred(one, answer);
    if (answer.direction == Direction::Backward) return true;
    for (std::size_t at = 0; at < weights.size(); ++at) {
      if (weights[at] == Weight::Binding &&
          inference.inputs[at].layout.dims != answer.inputs[at].dims) {
        return false;
      }
    }
    return true;
  } catch (const InputError&) {
    return false;
  }
}

Layout whole(const Layout& layout) { return Layout::replicated(layout.dims.size()); }

/// With the names of those that have been heard so far.
[[noreturn]] void refuse_firm(const OperatorOnMesh& one, const RuleAnswer& answer,
                              const std::vector<Weight>& weights) {
  const auto tensors = tensors_of(one.row().inputs);
  std::string names;
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    if (!tensors[at] || weights[at] == Weight::Heard ||
        answer.inputs[at] == whole(answer.inputs[at]))
      continue;
    names += (names.empty() ? "\"" : " and \"") + one.graph.tensors[*tensors[at]].name + "\"";
  }
  std::string why = "its rule has " + one.row().rule + " take them otherwise";
  try {
    (void)inferred(one, answer);
  } catch (const InputError& error) {
    why = error.message();
  }
  throw InputError("operator \"" + one.row().name + "\": the annotations of " + names +
                   " contradict each other: " + why +
                   "; annotate how the operator takes its inputs, and they are brought there");
}

}  // namespace

std::vector<Layout> whole_layouts(const OperatorGraph& graph,
                                  const std::vector<GraphArgument>& arguments) {
  std::vector<Layout> layouts;
  for (const auto& tensor : tensors_of(arguments)) {
    layouts.push_back(Layout::replicated(tensor ? graph.tensors[*tensor].shape.size() : 0));
  }
  return layouts;
}

bool settles_itself(const GraphOperator& one) {
  const auto any_of = [](const std::vector<std::optional<Layout>>& layouts) {
    return std::any_of(layouts.begin(), layouts.end(),
                       [](const auto& layout) { return layout.has_value(); });
  };
  return any_of(one.annotation.inputs) || any_of(one.annotation.outputs);
}

bool divides(const Layout& layout, int axis, int mesh_dim) {
  const std::vector<int>& dims = layout.dims[static_cast<std::size_t>(axis)];
  return std::find(dims.begin(), dims.end(), mesh_dim) != dims.end();
}

RuleAnswer answer_of_rule(const OperatorOnMesh& one, Direction direction,
                          std::vector<Layout> inputs, std::vector<Layout> outputs,
                          const std::vector<Weight>& weights) {
  RuleAnswer answer{direction, std::move(inputs), std::move(outputs)};
  if (is_accepted(one, answer, weights)) {
    answer.inference = inferred(one, answer);
    return answer;
  }
  std::vector<Layout>& heard = heard_of(answer);
  const std::vector<Layout> wished = heard;
  for (Layout& layout : heard) layout = whole(layout);
  if (direction == Direction::Backward && !is_accepted(one, answer, weights)) return answer;
  std::vector<Weight> so_far(weights.size());
  for (const Weight weight : {Weight::Binding, Weight::Firm, Weight::Heard}) {
    for (std::size_t at = 0; at < heard.size(); ++at) {
      if (weights[at] != weight) continue;
      heard[at] = wished[at];
      so_far[at] = weight;
      if (is_accepted(one, answer, so_far)) continue;
      if (weight != Weight::Heard && direction == Direction::Forward) {
        refuse_firm(one, answer, so_far);
      }
      heard[at] = whole(wished[at]);
    }
  }
  answer.inference = inferred(one, answer);
  return answer;
}

std::optional<HeardDimension> source_of(const OperatorOnMesh& one, const RuleAnswer& answer,
                                        int mesh_dim,
                                        const std::function<bool(const Inference&)>& follows) {
  RuleAnswer without = answer;
  std::vector<Layout>& heard = heard_of(without);
  std::optional<HeardDimension> first;
  for (std::size_t place = 0; place < heard.size(); ++place) {
    for (std::size_t axis = 0; axis < heard[place].dims.size(); ++axis) {
      if (!divides(heard[place], static_cast<int>(axis), mesh_dim)) continue;
      const HeardDimension here{place, static_cast<int>(axis)};
      if (!first) first = here;
      const Layout kept = heard[place];
      std::vector<int>& dims = heard[place].dims[axis];
      dims.erase(std::find(dims.begin(), dims.end(), mesh_dim));
      const bool needed = !is_accepted(one, without, {}) || !follows(inferred(one, without));
      heard[place] = kept;
      if (needed) return here;
    }
  }
  return first;
}

}  // namespace pipewright::spmd
