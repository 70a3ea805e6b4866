// How a tensor lies on a mesh. Seen from the tensor, each of its dimensions is divided by some
// dimensions of the mesh (dims_mapping); seen from the mesh, each of its dimensions has a
// placement: Replicate, Shard or Partial. A dimension that does not divide evenly has shards of
// ceil(n / k) elements, the last ones shorter or empty.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/spmd/process_mesh.hpp"

namespace pipewright::spmd {

/// How the values of the processes along a mesh dimension become one. Norm: as the p-norm of the
/// operator that left them.
enum class Reduction { Sum, Average, Product, Maximum, Minimum, All, Any, LogSumExp, Norm };

struct Placement {
  enum class Kind { Replicate, Shard, Partial };
  Kind kind = Kind::Replicate;
  int axis = 0;                          // of a Shard: the dimension of the tensor
  Reduction reduction = Reduction::Sum;  // of a Partial

  bool operator==(const Placement&) const = default;
};

struct Layout {
  /// For each dimension of the tensor the mesh dimensions that divide it, the outermost first.
  std::vector<std::vector<int>> dims = {};
  std::map<int, Reduction> partial = {};  // by mesh dimension

  static Layout replicated(std::size_t dims) {
    return {.dims = std::vector<std::vector<int>>(dims), .partial = {}};
  }

  bool operator==(const Layout&) const = default;
};

using Shape = std::vector<std::int64_t>;

struct Tensor {
  Shape shape;
  Layout layout;
};

/// The one number that dims_mapping has for a dimension: -1 where it is whole; where several mesh
/// dimensions divide it, the first of the largest.
int mapping_of(const std::vector<int>& mesh_dims, const ProcessMesh& mesh);

/// One for each dimension of the mesh. Where several divide one dimension of the tensor, they do so
/// in the order of the mesh, which is the only one that placements can say.
std::vector<Placement> placements_of(const Layout& layout, const ProcessMesh& mesh);
/// Throws InputError for an axis that the tensor does not have.
Layout layout_of(const std::vector<Placement>& placements, std::size_t tensor_dims);

/// "R", "S0", "P(sum)".
std::string text_of(const Placement& placement);
/// "S0 R", one placement for each dimension of the mesh.
std::string text_of(const Layout& layout, const ProcessMesh& mesh);
std::string_view name_of(Reduction reduction);
/// Of what text_of() writes; throws InputError.
Placement placement_of(std::string_view text);

/// Throws InputError: not an entry for each dimension of the tensor, a mesh dimension that the mesh
/// does not have, one that divides the tensor twice, or is Partial and divides it. `name` is the
/// tensor's in the sentence.
void require_layout(const Tensor& tensor, const ProcessMesh& mesh, const std::string& name);

}  // namespace pipewright::spmd
