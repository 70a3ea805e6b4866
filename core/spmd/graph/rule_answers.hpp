// An operator's rule on the layouts of its tensors in a graph: what it refuses together is heard in
// part, and each division that follows has a source.
#pragma once

#include <functional>

#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd {

struct OperatorOnMesh {
  const OperatorGraph& graph;
  std::size_t at;  // of its operators
  const ProcessMesh& mesh;

  const GraphOperator& row() const { return graph.operators[at]; }
};

/// How much the layout of a tensor counts at an operator.
enum class Weight {
  Heard,    // it is brought where the rule has it
  Firm,     // annotated at the tensor: it is brought there too, but heard before others
  Binding,  // annotated at the operator: it stays
};

/// Layouts are one after the other, as tensors_of() has the tensors.
struct RuleAnswer {
  Direction direction = Direction::Forward;
  std::vector<Layout> inputs, outputs;  // as they were heard: inputs forward, outputs backward
  Inference inference = {};
};

/// Of the inputs forward, of the outputs backward, those that the rule refuses together with others
/// before them, or that would change binding ones, are taken for whole; binding ones come first,
/// then firm ones. Throws InputError, with the names of operator and tensors, where inputs that are
/// not just heard contradict each other.
RuleAnswer answer_of_rule(const OperatorOnMesh& one, Direction direction,
                          std::vector<Layout> inputs, std::vector<Layout> outputs,
                          const std::vector<Weight>& weights);

/// A dimension of a tensor that was heard, by its place.
struct HeardDimension {
  std::size_t place = 0;
  int axis = 0;
};

/// Where `mesh_dim` divides a tensor that was heard, without which `follows` is no longer true; the
/// first that it divides where there is none such, as where two tensors say the same.
std::optional<HeardDimension> source_of(const OperatorOnMesh& one, const RuleAnswer& answer,
                                        int mesh_dim,
                                        const std::function<bool(const Inference&)>& follows);

/// A tensor on an operator's mesh.
struct LyingTensor {
  const Layout& layout;
  bool is_annotated;  // at the tensor
};

struct WeighedLayouts {
  std::vector<Layout> layouts = {};
  std::vector<Weight> weights = {};
};

/// How an operator's inputs, or its outputs, come to it: as it is annotated (`annotated` may be
/// empty), else as `lying` has the tensor. What tensors are annotated with is firm, unless the
/// operator is annotated with how it takes or makes any.
WeighedLayouts weighed_layouts(const GraphOperator& one,
                               const std::vector<std::optional<std::size_t>>& tensors,
                               const std::vector<std::optional<Layout>>& annotated,
                               const std::function<LyingTensor(std::size_t)>& lying);

/// Whole layouts of the tensors of some arguments.
std::vector<Layout> whole_layouts(const OperatorGraph& graph,
                                  const std::vector<GraphArgument>& arguments);

/// Whether `mesh_dim` divides dimension `axis`.
bool divides(const Layout& layout, int axis, int mesh_dim);

}  // namespace pipewright::spmd
