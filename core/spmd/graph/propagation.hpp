// Which dimensions of the tensors of a graph are divided, as far as annotations reach through the
// rules of the operators, forward and backward, until nothing more follows.
#pragma once

#include <map>

#include "core/spmd/graph/process_meshes.hpp"

namespace pipewright::spmd {

/// A tensor on one mesh: its own, or one on which an operator makes or takes it.
struct TensorOnMesh {
  std::size_t tensor = 0, mesh = 0;

  auto operator<=>(const TensorOnMesh&) const = default;
};

/// That a dimension of the mesh divides a dimension of the tensor.
struct DividedDimension {
  TensorOnMesh tensor;
  int axis = 0, mesh_dim = 0;

  auto operator<=>(const DividedDimension&) const = default;
};

/// Why it does, or what would have it so.
struct Cause {
  enum class Kind {
    Annotation,          // of the tensor
    OperatorAnnotation,  // of what an operator takes or makes
    Rule,                // of an operator, from another tensor
    OtherMesh,           // the same tensor on another mesh
  };
  Kind kind = Kind::Annotation;
  std::size_t operator_at = 0;
  Direction direction = Direction::Forward;
  std::optional<DividedDimension> from = {};
};

struct TensorDivisions {
  Layout layout;  // partial only where it is annotated
  bool is_annotated = false;
};

struct Propagation {
  std::map<TensorOnMesh, TensorDivisions> tensors;
  std::map<DividedDimension, Cause> causes;
  /// What rules asked for and could not have, the last for each.
  std::map<DividedDimension, Cause> refused;
  int sweeps = 0;  // over all operators and back
};

/// Never changes an annotation. It ends because a dimension that is divided stays so: each sweep
/// but the last divides one more. Throws InputError where annotations contradict each other at an
/// operator, with its name and those of the tensors.
Propagation propagated(const OperatorGraph& graph, const std::vector<std::size_t>& order,
                       const GraphMeshes& meshes);

/// Adds to `layout` what `wanted` divides further: a dimension that is whole or divided by the
/// first of the same mesh dimensions gets the others, as far as they divide nothing else. Returns
/// what was added; what was not is in `refused`.
std::vector<std::pair<int, int>> add_divisions(Layout& layout, const Layout& wanted,
                                               std::vector<std::pair<int, int>>* refused = nullptr);

}  // namespace pipewright::spmd
