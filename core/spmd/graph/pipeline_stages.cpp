#include "core/spmd/graph/pipeline_stages.hpp"

#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "core/spmd/graph/layers.hpp"

namespace pipewright::spmd {
namespace {

class StageReading {
 public:
  explicit StageReading(const OperatorGraph& graph) : graph_(graph) {}

  PipelineStages stages() && {
    if (graph_.pipeline) result_.placement = graph_.pipeline->placement;
    for (const std::size_t at : program_order(graph_))
      add_mesh(*graph_.operators[at].annotation.mesh);
    require_apart();
    for (const GraphOperator& one : graph_.operators) {
      result_.chunks = std::max(result_.chunks, *one.annotation.chunk_id + 1);
    }
    std::vector<bool> is_there(result_.count());
    for (const GraphOperator& one : graph_.operators) {
      result_.of_operators.push_back(stage_of(one));
      is_there[result_.of_operators.back()] = true;
    }
    const auto missing = std::ranges::find(is_there, false);
    if (missing != is_there.end()) {
      refuse_empty(static_cast<std::size_t>(missing - is_there.begin()));
    }
    require_forward();
    return std::move(result_);
  }

 private:
  const ProcessMesh& mesh(std::size_t at) const { return graph_.meshes[at].mesh; }

  /// Where the pipeline has it, of meshes that are equal.
  std::optional<std::size_t> rank_of_mesh(std::size_t one) const {
    const auto is_it = [&](std::size_t other) { return mesh(other) == mesh(one); };
    const auto found = std::ranges::find_if(result_.meshes, is_it);
    if (found == result_.meshes.end()) return std::nullopt;
    return static_cast<std::size_t>(found - result_.meshes.begin());
  }

  void add_mesh(std::size_t one) {
    if (!rank_of_mesh(one)) result_.meshes.push_back(one);
  }

  void require_apart() const {
    std::map<int, std::size_t> mesh_of;
    for (const std::size_t one : result_.meshes) {
      for (const int rank : mesh(one).ranks) {
        const auto [other, is_new] = mesh_of.emplace(rank, one);
        if (is_new) continue;
        throw InputError("meshes " + in_quotes(graph_.meshes[other->second].name) + " and " +
                         in_quotes(graph_.meshes[one].name) + " share process " +
                         std::to_string(rank) + "; the stages of a pipeline share none");
      }
    }
  }

  std::size_t stage_of(const GraphOperator& one) const {
    const std::size_t rank = *rank_of_mesh(*one.annotation.mesh), count = result_.meshes.size();
    const auto chunk = static_cast<std::size_t>(*one.annotation.chunk_id);
    return chunk * count + stage_in_round(result_.placement, chunk, rank, count);
  }

  [[noreturn]] void refuse_empty(std::size_t stage) const {
    throw InputError("no operator is in chunk " + std::to_string(stage / result_.meshes.size()) +
                     " on mesh " +
                     in_quotes(graph_.meshes[result_.meshes[result_.rank_of(stage)]].name) +
                     ", and other meshes have one; every stage has as many chunks");
  }

  void require_forward() const {
    const auto producers = producers_of(graph_);
    for (std::size_t at = 0; at < graph_.operators.size(); ++at) {
      const GraphOperator& one = graph_.operators[at];
      for (const auto& tensor : tensors_of(one.inputs)) {
        const auto maker = tensor ? producers[*tensor] : std::nullopt;
        if (!maker || result_.of_operators[*maker] <= result_.of_operators[at]) continue;
        throw InputError("operator " + in_quotes(one.name) + " is on stage " +
                         std::to_string(result_.of_operators[at]) + " and takes " +
                         in_quotes(graph_.tensors[*tensor].name) + " of stage " +
                         std::to_string(result_.of_operators[*maker]) +
                         "; in a pipeline stages take from those before them");
      }
      for (const auto& tensor : tensors_of(one.outputs)) {
        if (!tensor) continue;
        const std::size_t lies = *graph_.tensors[*tensor].annotation.mesh;
        if (mesh(lies) == mesh(*one.annotation.mesh)) continue;
        throw InputError("tensor " + in_quotes(graph_.tensors[*tensor].name) + " lies on mesh " +
                         in_quotes(graph_.meshes[lies].name) + " and is made on " +
                         in_quotes(graph_.meshes[*one.annotation.mesh].name) +
                         "; in a pipeline a tensor lies where it is made");
      }
    }
  }

  const OperatorGraph& graph_;
  PipelineStages result_;
};

}  // namespace

std::size_t PipelineStages::rank_of(std::size_t stage) const {
  const std::size_t count = meshes.size();
  return stage_in_round(placement, stage / count, stage % count, count);
}

std::vector<std::size_t> PipelineStages::order_of(const OperatorGraph& completed) const {
  std::vector<std::size_t> order = ordered_operators(completed);
  std::ranges::stable_sort(order, {}, [&](std::size_t at) { return of_operators[at]; });
  return order;
}

PipelineStages pipeline_stages(const OperatorGraph& completed) {
  return StageReading(completed).stages();
}

}  // namespace pipewright::spmd
