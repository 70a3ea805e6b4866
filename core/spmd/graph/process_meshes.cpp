#include "core/spmd/graph/process_meshes.hpp"

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/spmd/graph/chunks.hpp"

namespace pipewright::spmd {
namespace {

class MeshCompletion {
 public:
  MeshCompletion(const OperatorGraph& graph, const std::vector<std::size_t>& order)
      : graph_(graph),
        order_(order),
        producers_(producers_of(graph)),
        place_(graph.operators.size()),
        takers_(graph.tensors.size()),
        meshes_(graph.operators.size()) {
    for (std::size_t at = 0; at < order.size(); ++at) place_[order[at]] = at;
    for (const std::size_t one : order) {
      for (const auto& tensor : tensors_of(graph.operators[one].inputs)) {
        if (tensor && (takers_[*tensor].empty() || takers_[*tensor].back() != one)) {
          takers_[*tensor].push_back(one);
        }
      }
    }
  }

  GraphMeshes complete() && {
    for (std::size_t at = 0; at < graph_.operators.size(); ++at) {
      meshes_[at] = graph_.operators[at].annotation.mesh;
    }
    for (const std::size_t one : order_) take_from_annotated_inputs(one);
    spread();
    GraphMeshes result;
    for (std::size_t at = 0; at < graph_.operators.size(); ++at) {
      result.of_operators.push_back(mesh_of_operator(at));
      result.operator_chunks.push_back(graph_.operators[at].annotation.chunk_id.value_or(0));
    }
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
      result.of_tensors.push_back(mesh_of_tensor(at, result));
      result.tensor_chunks.push_back(chunk_of_tensor(at, result));
    }
    return result;
  }

 private:
  /// Of two meshes the one that holds all processes of the other, in more dimensions if they are
  /// the same; nothing if neither does.
  std::optional<std::size_t> compatible(std::size_t one, std::size_t other) const {
    const ProcessMesh &a = graph_.meshes[one].mesh, &b = graph_.meshes[other].mesh;
    if (a.ranks == b.ranks) return a.dims() >= b.dims() ? one : other;
    const std::set<int> of_a(a.ranks.begin(), a.ranks.end()), of_b(b.ranks.begin(), b.ranks.end());
    if (std::includes(of_b.begin(), of_b.end(), of_a.begin(), of_a.end())) return other;
    if (std::includes(of_a.begin(), of_a.end(), of_b.begin(), of_b.end())) return one;
    return std::nullopt;
  }

  void take_from_annotated_inputs(std::size_t one) {
    if (graph_.operators[one].annotation.mesh) return;
    for (const auto& tensor : tensors_of(graph_.operators[one].inputs)) {
      if (!tensor || takers_[*tensor].front() != one) continue;
      const auto annotated = graph_.tensors[*tensor].annotation.mesh;
      if (!annotated) continue;
      meshes_[one] =
          meshes_[one] ? compatible(*meshes_[one], *annotated).value_or(*meshes_[one]) : *annotated;
    }
  }

  /// The operator, of those that make an operator's inputs, that comes last and has a mesh.
  std::optional<std::size_t> last_source(std::size_t one) const {
    std::optional<std::size_t> last;
    for (const auto& tensor : tensors_of(graph_.operators[one].inputs)) {
      const auto maker = tensor ? producers_[*tensor] : std::nullopt;
      if (maker && meshes_[*maker] && (!last || place_[*maker] > place_[*last])) last = maker;
    }
    return last;
  }

  std::optional<std::size_t> first_taker(std::size_t one) const {
    std::optional<std::size_t> first;
    for (const auto& tensor : tensors_of(graph_.operators[one].outputs)) {
      for (const std::size_t taker : tensor ? takers_[*tensor] : std::vector<std::size_t>()) {
        if (meshes_[taker] && (!first || place_[taker] < place_[*first])) first = taker;
      }
    }
    return first;
  }

  void spread() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::size_t one : order_) changed |= take(one, last_source(one));
      for (auto one = order_.rbegin(); !changed && one != order_.rend(); ++one) {
        changed = take(*one, first_taker(*one));
      }
    }
  }

  bool take(std::size_t one, std::optional<std::size_t> source) {
    if (!source || meshes_[one]) return false;
    meshes_[one] = meshes_[*source];
    return true;
  }

  std::size_t mesh_of_operator(std::size_t one) const {
    if (meshes_[one]) return *meshes_[one];
    if (graph_.meshes.size() == 1) return 0;
    throw InputError("operator \"" + graph_.operators[one].name +
                     "\": no annotation says on which mesh it is; annotate its \"process_mesh\"");
  }

  std::size_t mesh_of_tensor(std::size_t tensor, const GraphMeshes& result) const {
    const GraphTensor& one = graph_.tensors[tensor];
    if (one.annotation.mesh) return *one.annotation.mesh;
    if (producers_[tensor]) return result.of_operators[*producers_[tensor]];
    if (!takers_[tensor].empty()) return result.of_operators[takers_[tensor].front()];
    if (graph_.meshes.size() == 1) return 0;
    throw InputError("tensor \"" + one.name +
                     "\": no operator takes it and no annotation says on which mesh it is; "
                     "annotate its \"mesh\"");
  }

  /// Of the first operator that makes or takes it on its own mesh.
  int chunk_of_tensor(std::size_t tensor, const GraphMeshes& result) const {
    if (const auto chunk = graph_.tensors[tensor].annotation.chunk_id) return *chunk;
    std::vector<std::size_t> touching = takers_[tensor];
    if (producers_[tensor]) touching.insert(touching.begin(), *producers_[tensor]);
    for (const std::size_t one : touching) {
      if (result.of_operators[one] == result.of_tensors[tensor]) return result.operator_chunks[one];
    }
    return 0;
  }

  const OperatorGraph& graph_;
  const std::vector<std::size_t>& order_;
  std::vector<std::optional<std::size_t>> producers_;
  std::vector<std::size_t> place_;  // in the order
  std::vector<std::vector<std::size_t>> takers_;
  std::vector<std::optional<std::size_t>> meshes_;  // as far as they are known
};

}  // namespace

GraphMeshes completed_meshes(const OperatorGraph& graph, const std::vector<std::size_t>& order) {
  GraphMeshes meshes = MeshCompletion(graph, order).complete();
  assign_chunks(graph, meshes);
  return meshes;
}

bool are_alike(const ProcessMesh& one, const ProcessMesh& other) {
  return one.shape == other.shape && one.dim_names == other.dim_names;
}

}  // namespace pipewright::spmd
