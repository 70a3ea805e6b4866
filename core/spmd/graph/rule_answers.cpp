#include "core/spmd/graph/rule_answers.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

std::vector<Layout>& heard_of(RuleAnswer& answer) {
  return answer.direction == Direction::Forward ? answer.inputs : answer.outputs;
}

/// As annotated; what is not is whole.
Inference annotated(const OperatorOnMesh& one) {
  const auto side = [&](const std::vector<GraphArgument>& arguments,
                        const std::vector<std::optional<Layout>>& given) {
    std::vector<PlacedLayout> placed;
    for (const Layout& otherwise : whole_layouts(one.graph, arguments)) {
      const std::size_t at = placed.size();
      const bool is_given = at < given.size() && given[at];
      placed.push_back({std::to_string(at), is_given ? *given[at] : otherwise});
    }
    return placed;
  };
  return {side(one.row().inputs, one.row().annotation.inputs),
          side(one.row().outputs, one.row().annotation.outputs)};
}

Inference inferred(const OperatorOnMesh& one, const RuleAnswer& answer) {
  if (one.row().rule == kLocalMap) return annotated(one);
  return infer(
      call_of(one.graph, one.row(), answer.direction, one.mesh, answer.inputs, answer.outputs));
}

/// What the rule answers; nothing where it refuses or would change binding inputs.
std::optional<Inference> accepted(const OperatorOnMesh& one, const RuleAnswer& answer,
                                  const std::vector<Weight>& weights) {
  try {
    Inference inference = inferred(one, answer);
    if (answer.direction == Direction::Backward) return inference;
    for (std::size_t at = 0; at < weights.size(); ++at) {
      if (weights[at] == Weight::Binding &&
          inference.inputs[at].layout.dims != answer.inputs[at].dims) {
        return std::nullopt;
      }
    }
    return inference;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

bool is_any_given(const std::vector<std::optional<Layout>>& layouts) {
  return std::any_of(layouts.begin(), layouts.end(),
                     [](const auto& layout) { return layout.has_value(); });
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

WeighedLayouts weighed_layouts(const GraphOperator& one,
                               const std::vector<std::optional<std::size_t>>& tensors,
                               const std::vector<std::optional<Layout>>& annotated,
                               const std::function<LyingTensor(std::size_t)>& lying) {
  const bool settles_itself =
      is_any_given(one.annotation.inputs) || is_any_given(one.annotation.outputs);
  WeighedLayouts result;
  for (std::size_t place = 0; place < tensors.size(); ++place) {
    Weight weight = Weight::Heard;
    if (place < annotated.size() && annotated[place]) {
      result.layouts.push_back(*annotated[place]);
      weight = Weight::Binding;
    } else if (tensors[place]) {
      const LyingTensor tensor = lying(*tensors[place]);
      result.layouts.push_back(tensor.layout);
      if (tensor.is_annotated && !settles_itself) weight = Weight::Firm;
    } else {
      result.layouts.emplace_back();
    }
    result.weights.push_back(weight);
  }
  return result;
}

bool divides(const Layout& layout, int axis, int mesh_dim) {
  const std::vector<int>& dims = layout.dims[static_cast<std::size_t>(axis)];
  return std::find(dims.begin(), dims.end(), mesh_dim) != dims.end();
}

RuleAnswer answer_of_rule(const OperatorOnMesh& one, Direction direction,
                          std::vector<Layout> inputs, std::vector<Layout> outputs,
                          const std::vector<Weight>& weights) {
  RuleAnswer answer{direction, std::move(inputs), std::move(outputs)};
  if (auto inference = accepted(one, answer, weights)) {
    answer.inference = std::move(*inference);
    return answer;
  }
  std::vector<Layout>& heard = heard_of(answer);
  const std::vector<Layout> wished = heard;
  for (Layout& layout : heard) layout = whole(layout);
  if (direction == Direction::Backward && !accepted(one, answer, weights)) return answer;
  std::vector<Weight> so_far(weights.size());
  for (const Weight weight : {Weight::Binding, Weight::Firm, Weight::Heard}) {
    for (std::size_t at = 0; at < heard.size(); ++at) {
      if (weights[at] != weight) continue;
      heard[at] = wished[at];
      so_far[at] = weight;
      if (accepted(one, answer, so_far)) continue;
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
      const auto inference = accepted(one, without, {});
      const bool needed = !inference || !follows(*inference);
      heard[place] = kept;
      if (needed) return here;
    }
  }
  return first;
}

}  // namespace pipewright::spmd
