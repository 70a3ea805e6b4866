#include "core/spmd/graph/completion.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/order/element_type.hpp"
#include "core/spmd/graph/implementations.hpp"
#include "core/spmd/graph/rule_answers.hpp"

namespace pipewright::spmd {
namespace {

using Tensors = std::vector<std::optional<std::size_t>>;

/// What an operator computes with and what it makes.
struct OperatorLayouts {
  std::vector<Layout> inputs, outputs;
};

class Completer {
 public:
  explicit Completer(const OperatorGraph& graph)
      : graph_(graph),
        order_(ordered_operators(graph)),
        meshes_(completed_meshes(graph, order_)),
        why_(propagated(graph, order_, meshes_)),
        layouts_(graph.operators.size()) {
    for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
      tensors_.push_back(why_.tensors.at({at, meshes_.of_tensors[at]}).layout);
    }
  }

  Completion complete() && {
    Completion completion{.graph = graph_, .reshards = {}, .why = {}};
    for (const std::size_t at : order_) settle(at);
    for (const std::size_t at : order_) add_reshards(at, completion.reshards);
    for (std::size_t at = 0; at < graph_.operators.size(); ++at) {
      annotate_operator(at, completion.graph.operators[at].annotation);
    }
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
      completion.graph.tensors[at].annotation = {.mesh = meshes_.of_tensors[at],
                                                 .layout = tensors_[at],
                                                 .chunk_id = meshes_.tensor_chunks[at]};
    }
    completion.why = std::move(why_);
    completion.meshes = std::move(meshes_);
    return completion;
  }

 private:
  std::size_t mesh_of(std::size_t at) const { return meshes_.of_operators[at]; }
  const ProcessMesh& mesh(std::size_t at) const { return graph_.meshes[at].mesh; }
  bool is_at_home(std::size_t tensor, std::size_t at) const {
    return meshes_.of_tensors[tensor] == mesh_of(at);
  }

  OperatorOnMesh on_mesh(std::size_t at) const { return {graph_, at, mesh(mesh_of(at))}; }

  /// As it lies on the operator's mesh before the operator says how it takes it.
  const Layout& as_it_comes(std::size_t tensor, std::size_t at) const {
    if (is_at_home(tensor, at)) return tensors_[tensor];
    return why_.tensors.at({tensor, mesh_of(at)}).layout;
  }

  void settle(std::size_t at) {
    const GraphOperator& one = graph_.operators[at];
    const Tensors inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
    require_annotated(at, inputs, one.annotation.inputs);
    require_annotated(at, outputs, one.annotation.outputs);
    auto [come, weights] =
        weighed_layouts(one, inputs, one.annotation.inputs, [&](std::size_t tensor) {
          const bool is_annotated =
              is_at_home(tensor, at) && graph_.tensors[tensor].annotation.layout.has_value();
          return LyingTensor{as_it_comes(tensor, at), is_annotated};
        });
    layouts_[at] = agreed(at, come, weights);
    if (contradiction(at)) settle_backward(at, std::move(come), weights);
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      if (outputs[place]) take_as_made(at, place, *outputs[place]);
    }
  }

  void require_annotated(std::size_t at, const Tensors& tensors,
                         const std::vector<std::optional<Layout>>& layouts) const {
    for (std::size_t place = 0; place < layouts.size(); ++place) {
      if (!layouts[place]) continue;
      const GraphTensor& tensor = graph_.tensors[*tensors[place]];
      require_layout({tensor.shape, *layouts[place]}, mesh(mesh_of(at)),
                     "operator \"" + graph_.operators[at].name + "\": the annotation of \"" +
                         tensor.name + "\"");
    }
  }

  /// Layouts that the rule, asked with them, gives back, and those of the outputs.
  OperatorLayouts agreed(std::size_t at, const std::vector<Layout>& come,
                         const std::vector<Weight>& weights) const {
    const GraphOperator& one = graph_.operators[at];
    const std::vector<Layout> none = whole_layouts(graph_, one.outputs);
    OperatorLayouts layouts{.inputs = come, .outputs = {}};
    constexpr int kMostRounds = 8;
    for (int round = 0; round < kMostRounds; ++round) {
      const RuleAnswer answer =
          answer_of_rule(on_mesh(at), Direction::Forward, layouts.inputs, none, weights);
      std::vector<Layout> inputs, outputs;
      for (const PlacedLayout& placed : answer.inference.inputs) inputs.push_back(placed.layout);
      for (const PlacedLayout& placed : answer.inference.outputs) outputs.push_back(placed.layout);
      const bool is_settled = round > 0 && inputs == layouts.inputs;
      layouts = {std::move(inputs), std::move(outputs)};
      if (is_settled) return layouts;
    }
    throw_bug(__FILE__, __LINE__, "the rule of " + one.rule + " does not agree with itself");
  }

  /// The place of an output that the operator's annotation has otherwise.
  std::optional<std::size_t> contradiction(std::size_t at) const {
    const auto& annotated = graph_.operators[at].annotation.outputs;
    for (std::size_t place = 0; place < annotated.size(); ++place) {
      if (annotated[place] && *annotated[place] != layouts_[at].outputs[place]) return place;
    }
    return std::nullopt;
  }

  /// Inputs that are not annotated as the annotated outputs need them.
  void settle_backward(std::size_t at, std::vector<Layout> come,
                       const std::vector<Weight>& weights) {
    const GraphOperator& one = graph_.operators[at];
    std::vector<Layout> outputs = whole_layouts(graph_, one.outputs);
    for (std::size_t place = 0; place < one.annotation.outputs.size(); ++place) {
      if (one.annotation.outputs[place]) outputs[place] = *one.annotation.outputs[place];
    }
    const RuleAnswer answer =
        answer_of_rule(on_mesh(at), Direction::Backward, whole_layouts(graph_, one.inputs), outputs,
                       std::vector<Weight>(outputs.size()));
    const auto& needed = answer.inference.inputs;
    for (std::size_t place = 0; place < std::min(come.size(), needed.size()); ++place) {
      if (weights[place] != Weight::Binding) come[place] = needed[place].layout;
    }
    layouts_[at] = agreed(at, come, weights);
    if (const auto place = contradiction(at)) refuse(at, *place);
  }

  [[noreturn]] void refuse(std::size_t at, std::size_t place) const {
    const GraphOperator& one = graph_.operators[at];
    const ProcessMesh& processes = mesh(mesh_of(at));
    throw InputError("operator \"" + one.name + "\" (" + one.rule + "): its output \"" +
                     graph_.tensors[*tensors_of(one.outputs)[place]].name + "\" is annotated " +
                     text_of(*one.annotation.outputs[place], processes) +
                     ", and from what it takes follows " +
                     text_of(layouts_[at].outputs[place], processes) +
                     "; annotate the tensor instead, and it is brought there");
  }

  /// As it is made, summed, and divided further as others want it.
  void take_as_made(std::size_t at, std::size_t place, std::size_t tensor) {
    if (graph_.tensors[tensor].annotation.layout) return;
    const Layout& made = layouts_[at].outputs[place];
    const bool says_the_same = are_alike(mesh(mesh_of(at)), mesh(meshes_.of_tensors[tensor]));
    if (!says_the_same) return;
    Layout layout{.dims = made.dims, .partial = {}};
    const TensorOnMesh home{tensor, meshes_.of_tensors[tensor]};
    add_divisions(layout, tensors_[tensor]);
    for (std::size_t axis = 0; axis < layout.dims.size(); ++axis) {
      for (const int dim : layout.dims[axis]) {
        why_.causes.try_emplace({home, static_cast<int>(axis), dim},
                                cause_of(at, place, static_cast<int>(axis), dim));
      }
    }
    tensors_[tensor] = std::move(layout);
  }

  Cause cause_of(std::size_t at, std::size_t place, int axis, int dim) const {
    const GraphOperator& one = graph_.operators[at];
    const RuleAnswer answer = answer_of_rule(on_mesh(at), Direction::Forward, layouts_[at].inputs,
                                             whole_layouts(graph_, one.outputs),
                                             std::vector<Weight>(layouts_[at].inputs.size()));
    Cause cause{.kind = Cause::Kind::Rule, .operator_at = at};
    const auto source = source_of(on_mesh(at), answer, dim, [&](const Inference& inference) {
      return divides(inference.outputs[place].layout, axis, dim);
    });
    if (source) {
      const std::size_t from = *tensors_of(one.inputs)[source->place];
      cause.from = DividedDimension{{from, mesh_of(at)}, source->axis, dim};
    }
    return cause;
  }

  void add_reshards(std::size_t at, std::vector<GraphReshard>& reshards) const {
    const GraphOperator& one = graph_.operators[at];
    const Tensors inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
    for (std::size_t place = 0; place < inputs.size(); ++place) {
      if (inputs[place]) add_taken(at, *inputs[place], layouts_[at].inputs[place], reshards);
    }
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      if (!outputs[place]) continue;
      const std::size_t tensor = *outputs[place];
      GraphReshard reshard{.tensor = tensor,
                           .is_made = true,
                           .operators = {at},
                           .from_mesh = mesh_of(at),
                           .to_mesh = meshes_.of_tensors[tensor],
                           .from = layouts_[at].outputs[place],
                           .to = tensors_[tensor]};
      add_planned(std::move(reshard), reshards);
    }
  }

  /// Once for all operators that take a tensor in one layout.
  void add_taken(std::size_t at, std::size_t tensor, const Layout& as_taken,
                 std::vector<GraphReshard>& reshards) const {
    const auto same = std::find_if(reshards.begin(), reshards.end(), [&](const auto& other) {
      return other.tensor == tensor && !other.is_made && other.to_mesh == mesh_of(at) &&
             other.to == as_taken;
    });
    if (same != reshards.end()) {
      if (same->operators.back() != at) same->operators.push_back(at);
      return;
    }
    GraphReshard reshard{.tensor = tensor,
                         .is_made = false,
                         .operators = {at},
                         .from_mesh = meshes_.of_tensors[tensor],
                         .to_mesh = mesh_of(at),
                         .from = tensors_[tensor],
                         .to = as_taken};
    add_planned(std::move(reshard), reshards);
  }

  void add_planned(GraphReshard reshard, std::vector<GraphReshard>& reshards) const {
    const ProcessMesh &from = mesh(reshard.from_mesh), &to = mesh(reshard.to_mesh);
    if (from == to && reshard.from == reshard.to) return;
    const GraphTensor& tensor = graph_.tensors[reshard.tensor];
    const ReshardPrices prices{.element_bytes = element_type(tensor.type)->bytes};
    reshard.plan = cheapest_reshard(tensor.shape, {from, reshard.from}, {to, reshard.to}, prices);
    reshards.push_back(std::move(reshard));
  }

  void annotate_operator(std::size_t at, OperatorAnnotation& annotation) const {
    const GraphOperator& one = graph_.operators[at];
    const auto all = [](const Tensors& tensors, const std::vector<Layout>& layouts) {
      std::vector<std::optional<Layout>> annotated;
      for (std::size_t place = 0; place < tensors.size(); ++place) {
        annotated.push_back(tensors[place] ? std::optional(layouts[place]) : std::nullopt);
      }
      return annotated;
    };
    annotation.mesh = mesh_of(at);
    annotation.inputs = all(tensors_of(one.inputs), layouts_[at].inputs);
    annotation.outputs = all(tensors_of(one.outputs), layouts_[at].outputs);
    const Implementation chosen = implementation_of(one, layouts_[at].inputs, layouts_[at].outputs);
    if (!annotation.impl_idx) annotation.impl_idx = annotation.impl_type ? 0 : chosen.index;
    if (!annotation.impl_type) annotation.impl_type = chosen.type;
    annotation.chunk_id = meshes_.operator_chunks[at];
  }

  const OperatorGraph& graph_;
  std::vector<std::size_t> order_;
  GraphMeshes meshes_;
  Propagation why_;
  std::vector<OperatorLayouts> layouts_;
  std::vector<Layout> tensors_;
};

}  // namespace

Completion completed(const OperatorGraph& graph) { return Completer(graph).complete(); }

std::int64_t bytes_of(const std::vector<GraphReshard>& reshards) {
  std::int64_t bytes = 0;
  for (const GraphReshard& reshard : reshards) bytes += reshard.plan.bytes;
  return bytes;
}

}  // namespace pipewright::spmd
