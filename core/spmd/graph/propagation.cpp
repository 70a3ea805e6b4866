#include "core/spmd/graph/propagation.hpp"

#include <algorithm>
#include <set>

#include "core/spmd/graph/rule_answers.hpp"

namespace pipewright::spmd {
namespace {

class Propagator {
 public:
  Propagator(const OperatorGraph& graph, const std::vector<std::size_t>& order,
             const GraphMeshes& meshes)
      : graph_(graph), order_(order), meshes_(meshes) {}

  Propagation propagate() && {
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) take_annotation(at);
    for (std::size_t at = 0; at < graph_.operators.size(); ++at) {
      for (const auto& tensor : tensors_of(graph_.operators[at].inputs)) add(tensor, at);
      for (const auto& tensor : tensors_of(graph_.operators[at].outputs)) add(tensor, at);
    }
    do {
      changed_ = false;
      ++result_.sweeps;
      for (const std::size_t one : order_) sweep(one, Direction::Forward);
      for (auto one = order_.rbegin(); one != order_.rend(); ++one) {
        sweep(*one, Direction::Backward);
      }
    } while (changed_);
    return std::move(result_);
  }

 private:
  using Tensors = std::vector<std::optional<std::size_t>>;

  TensorOnMesh at_home(std::size_t tensor) const { return {tensor, meshes_.of_tensors[tensor]}; }
  const ProcessMesh& mesh(std::size_t at) const { return graph_.meshes[at].mesh; }

  void take_annotation(std::size_t tensor) {
    const GraphTensor& one = graph_.tensors[tensor];
    TensorDivisions& own = result_.tensors[at_home(tensor)];
    own.layout = one.annotation.layout.value_or(Layout::replicated(one.shape.size()));
    own.is_annotated = one.annotation.layout.has_value();
    require_layout({one.shape, own.layout}, mesh(meshes_.of_tensors[tensor]),
                   "tensor \"" + one.name + "\"");
    for_each_division(own.layout, [&](int axis, int dim) {
      result_.causes[{at_home(tensor), axis, dim}] = {};
    });
  }

  /// As it lies on the mesh of an operator that has it.
  void add(std::optional<std::size_t> tensor, std::size_t operator_at) {
    if (!tensor) return;
    const TensorOnMesh there{*tensor, meshes_.of_operators[operator_at]};
    result_.tensors.try_emplace(
        there, TensorDivisions{Layout::replicated(graph_.tensors[*tensor].shape.size())});
  }

  template <class Act>
  static void for_each_division(const Layout& layout, Act act) {
    for (std::size_t axis = 0; axis < layout.dims.size(); ++axis) {
      for (const int dim : layout.dims[axis]) act(static_cast<int>(axis), dim);
    }
  }

  /// `cause_of(axis, mesh_dim)` is asked for each division that is new.
  template <class CauseOf>
  void offer(const TensorOnMesh& tensor, const Layout& wanted, CauseOf cause_of) {
    TensorDivisions& own = result_.tensors.at(tensor);
    if (own.layout.dims == wanted.dims) return;
    Layout layout = own.layout;
    std::vector<std::pair<int, int>> refused, added;
    if (own.is_annotated) {
      for_each_division(wanted, [&](int axis, int dim) {
        if (!divides(own.layout, axis, dim)) refused.emplace_back(axis, dim);
      });
    } else {
      added = add_divisions(layout, wanted, &refused);
    }
    for (const auto& [axis, dim] : refused) {
      if (result_.refused.count({tensor, axis, dim}) == 0) {
        result_.refused[{tensor, axis, dim}] = cause_of(axis, dim);
      }
    }
    for (const auto& [axis, dim] : added) {
      result_.causes[{tensor, axis, dim}] = cause_of(axis, dim);
      result_.refused.erase({tensor, axis, dim});
      changed_ = true;
    }
    own.layout = std::move(layout);
  }

  /// Between a tensor's own mesh and another one, where they are alike.
  void carry(const TensorOnMesh& from, const TensorOnMesh& to) {
    if (from.mesh == to.mesh || !are_alike(mesh(from.mesh), mesh(to.mesh))) return;
    offer(to, result_.tensors.at(from).layout, [&](int axis, int dim) {
      return Cause{.kind = Cause::Kind::OtherMesh, .from = DividedDimension{from, axis, dim}};
    });
  }

  void sweep(std::size_t at, Direction direction) {
    const GraphOperator& one = graph_.operators[at];
    const Tensors inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
    const bool forward = direction == Direction::Forward;
    for (const auto& tensor : forward ? inputs : outputs) {
      if (tensor) carry(at_home(*tensor), here(at, *tensor));
    }
    offer_annotations(at, inputs, one.annotation.inputs);
    offer_annotations(at, outputs, one.annotation.outputs);
    apply_rule(at, direction, inputs, outputs);
    for (const auto& tensor : forward ? outputs : inputs) {
      if (tensor) carry(here(at, *tensor), at_home(*tensor));
    }
  }

  TensorOnMesh here(std::size_t operator_at, std::size_t tensor) const {
    return {tensor, meshes_.of_operators[operator_at]};
  }

  void offer_annotations(std::size_t at, const Tensors& tensors,
                         const std::vector<std::optional<Layout>>& annotated) {
    for (std::size_t place = 0; place < annotated.size(); ++place) {
      if (!annotated[place]) continue;
      offer(here(at, *tensors[place]), *annotated[place], [&](int, int) {
        return Cause{.kind = Cause::Kind::OperatorAnnotation, .operator_at = at};
      });
    }
  }

  WeighedLayouts layouts_at(std::size_t at, const Tensors& tensors,
                            const std::vector<std::optional<Layout>>& annotated) const {
    return weighed_layouts(graph_.operators[at], tensors, annotated, [&](std::size_t tensor) {
      const TensorDivisions& own = result_.tensors.at(here(at, tensor));
      return LyingTensor{own.layout, own.is_annotated};
    });
  }

  void apply_rule(std::size_t at, Direction direction, const Tensors& inputs,
                  const Tensors& outputs) {
    const GraphOperator& one = graph_.operators[at];
    const OperatorOnMesh on_mesh{graph_, at, mesh(meshes_.of_operators[at])};
    const bool forward = direction == Direction::Forward;
    auto of_inputs = layouts_at(at, inputs, one.annotation.inputs);
    auto of_outputs = layouts_at(at, outputs, one.annotation.outputs);
    const RuleAnswer answer = answer_of_rule(on_mesh, direction, std::move(of_inputs.layouts),
                                             std::move(of_outputs.layouts),
                                             forward ? of_inputs.weights : of_outputs.weights);
    const auto tell = [&](const Tensors& tensors, std::vector<PlacedLayout> Inference::*side) {
      const auto& layouts = answer.inference.*side;
      for (std::size_t place = 0; place < std::min(tensors.size(), layouts.size()); ++place) {
        if (!tensors[place]) continue;
        offer(here(at, *tensors[place]), layouts[place].layout, [&](int axis, int dim) {
          const auto source = source_of(on_mesh, answer, dim, [&](const Inference& inference) {
            return divides((inference.*side)[place].layout, axis, dim);
          });
          Cause cause{.kind = Cause::Kind::Rule, .operator_at = at, .direction = direction};
          const Tensors& heard = forward ? inputs : outputs;
          if (source) {
            cause.from = DividedDimension{here(at, *heard[source->place]), source->axis, dim};
          }
          return cause;
        });
      }
    };
    if (forward) tell(outputs, &Inference::outputs);
    tell(inputs, &Inference::inputs);
  }

  const OperatorGraph& graph_;
  const std::vector<std::size_t>& order_;
  const GraphMeshes& meshes_;
  Propagation result_;
  bool changed_ = false;
};

}  // namespace

std::vector<std::pair<int, int>> add_divisions(Layout& layout, const Layout& wanted,
                                               std::vector<std::pair<int, int>>* refused) {
  std::set<int> taken;
  for (const std::vector<int>& dims : layout.dims) taken.insert(dims.begin(), dims.end());
  for (const auto& [dim, reduction] : layout.partial) taken.insert(dim);
  std::vector<std::pair<int, int>> added;
  for (std::size_t at = 0; at < layout.dims.size(); ++at) {
    std::vector<int>& own = layout.dims[at];
    const std::vector<int>& more = wanted.dims[at];
    bool goes_on = own.size() <= more.size() && std::equal(own.begin(), own.end(), more.begin());
    for (std::size_t next = 0; next < more.size(); ++next) {
      const int dim = more[next], axis = static_cast<int>(at);
      if (divides(layout, axis, dim)) continue;
      goes_on = goes_on && taken.insert(dim).second;
      if (goes_on) {
        own.push_back(dim);
        added.emplace_back(axis, dim);
      } else if (refused != nullptr) {
        refused->emplace_back(axis, dim);
      }
    }
  }
  return added;
}

Propagation propagated(const OperatorGraph& graph, const std::vector<std::size_t>& order,
                       const GraphMeshes& meshes) {
  return Propagator(graph, order, meshes).propagate();
}

}  // namespace pipewright::spmd
