#include "core/spmd/graph/chunks.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/spmd/graph/layers.hpp"

namespace pipewright::spmd {
namespace {

class ChunkAssignment {
 public:
  ChunkAssignment(const OperatorGraph& graph, GraphMeshes& meshes)
      : graph_(graph),
        pipeline_(*graph.pipeline),
        meshes_(meshes),
        program_(program_order(graph)),
        stages_(stage_meshes()) {}

  void assign() {
    require_chunks();
    const std::string& method = *pipeline_.vpp_seg_method;
    layers_ = layers_of(graph_, program_, method);
    const std::vector<std::size_t> of_layers = stages_of_layers();
    make_parts(sizes_of_parts(layers_, stages_.size() * degree(), method));
    // Stages in ascending order only say which comes first; in any other order the user has cut.
    moves_ = std::ranges::is_sorted(of_layers);
    meshes_.chunk_from.resize(graph_.tensors.size());
    is_moved_.resize(graph_.tensors.size());
    for (std::size_t place = 0; place < program_.size(); ++place) settle(place);
    if (pipeline_.placement == PartPlacement::V && degree() % 2 == 0) bring_loss_to_first();
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
      if (const auto chunk = graph_.tensors[at].annotation.chunk_id) {
        meshes_.tensor_chunks[at] = *chunk;
      } else {
        const auto from = meshes_.chunk_from[at];
        meshes_.tensor_chunks[at] = from ? meshes_.operator_chunks[*from] : 0;
      }
    }
  }

 private:
  std::size_t degree() const { return static_cast<std::size_t>(pipeline_.vpp_degree); }
  const ProcessMesh& mesh(std::size_t at) const { return graph_.meshes[at].mesh; }

  /// In the order of the program; one with all processes is no stage where others have fewer. Of
  /// equal ones the first.
  std::vector<std::size_t> stage_meshes() const {
    std::vector<std::size_t> found;
    std::set<int> all;
    const auto add = [&](std::size_t one) {
      all.insert(mesh(one).ranks.begin(), mesh(one).ranks.end());
      const auto is_it = [&](std::size_t other) { return mesh(other) == mesh(one); };
      if (std::ranges::none_of(found, is_it)) found.push_back(one);
    };
    for (const std::size_t at : program_) {
      const GraphOperator& one = graph_.operators[at];
      for (const auto& tensor : tensors_of(one.inputs)) {
        if (tensor) add(meshes_.of_tensors[*tensor]);
      }
      add(meshes_.of_operators[at]);
      for (const auto& tensor : tensors_of(one.outputs)) {
        if (tensor) add(meshes_.of_tensors[*tensor]);
      }
    }
    const auto has_all = [&](std::size_t one) { return mesh(one).ranks.size() == all.size(); };
    if (!std::ranges::all_of(found, has_all)) std::erase_if(found, has_all);
    return found;
  }

  void require_chunks() const {
    const std::string degree = "\"vpp_degree\" is " + std::to_string(pipeline_.vpp_degree);
    if (stages_.size() < 2) {
      throw InputError(degree + ", and all operators are on mesh " +
                       in_quotes(graph_.meshes[stages_.front()].name) +
                       "; chunks are of a pipeline: put layers on two meshes or more");
    }
    if (pipeline_.placement == PartPlacement::OneEach) {
      throw InputError(degree + ", and with the schedule " + in_quotes(pipeline_.schedule_mode) +
                       " a stage has one chunk; say \"schedule_mode\": \"VPP\", or \"ZBVPP\"");
    }
    if (!pipeline_.vpp_seg_method) {
      throw InputError(degree +
                       ", and nothing says where layers begin; say \"vpp_seg_method\": "
                       "\"layer:\" and what is in the names of their operators, or \"uniform\"");
    }
  }

  std::vector<std::size_t> stages_of_layers() const {
    std::vector<std::size_t> stages;
    for (const GraphLayer& layer : layers_) {
      const std::size_t first = program_[layer.first];
      for (std::size_t place = layer.first; place <= layer.last; ++place) {
        const std::size_t at = program_[place];
        if (mesh(meshes_.of_operators[at]) == mesh(meshes_.of_operators[first])) continue;
        throw InputError("layer " + in_quotes(layer.name) + " is on two meshes: operator " +
                         on_mesh(first) + ", " + on_mesh(at) + "; a layer is on one");
      }
      const auto is_it = [&](std::size_t one) {
        return mesh(one) == mesh(meshes_.of_operators[first]);
      };
      const auto stage = std::ranges::find_if(stages_, is_it);
      if (stage == stages_.end()) {
        throw InputError("layer " + in_quotes(layer.name) + ": operator " + on_mesh(first) +
                         ", which has the processes of all stages; put it on a stage's");
      }
      stages.push_back(static_cast<std::size_t>(stage - stages_.begin()));
    }
    return stages;
  }
  std::string on_mesh(std::size_t at) const {
    return in_quotes(graph_.operators[at].name) + " on " +
           in_quotes(graph_.meshes[meshes_.of_operators[at]].name);
  }

  void make_parts(const std::vector<std::size_t>& sizes) {
    std::size_t layer = 0;
    meshes_.part_of_operators.assign(graph_.operators.size(), sizes.size() - 1);
    std::size_t place = 0;
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      const std::size_t count = stages_.size(), round = part / count;
      PipelinePart one{.stage = stage_in_round(pipeline_.placement, round, part % count, count),
                       .chunk = static_cast<int>(round)};
      one.mesh = stages_[one.stage];
      for (std::size_t at = 0; at < sizes[part]; ++at) {
        one.layers.push_back(layers_[layer + at].name);
      }
      layer += sizes[part];
      for (; place <= layers_[layer - 1].last; ++place) {
        meshes_.part_of_operators[program_[place]] = part;
      }
      meshes_.parts.push_back(std::move(one));
    }
  }

  void settle(std::size_t place) {
    const std::size_t at = program_[place];
    const PipelinePart& part = meshes_.parts[meshes_.part_of_operators[at]];
    const bool is_of_layer = place >= layers_.front().first && place <= layers_.back().last;
    if (moves_ && is_of_layer) move(at, part.mesh);
    chunk(at, part.chunk);
  }

  /// With what it makes, and what it takes that lies there with it and that none before it has.
  void move(std::size_t at, std::size_t to) {
    const std::size_t from = std::exchange(meshes_.of_operators[at], to);
    for (const auto& tensor : tensors_of(graph_.operators[at].inputs)) {
      if (!tensor || is_moved_[*tensor] || !(mesh(meshes_.of_tensors[*tensor]) == mesh(from))) {
        continue;
      }
      meshes_.of_tensors[*tensor] = to;
      is_moved_[*tensor] = true;
    }
    for (const auto& tensor : tensors_of(graph_.operators[at].outputs)) {
      if (!tensor || is_moved_[*tensor]) continue;
      meshes_.of_tensors[*tensor] = to;
      is_moved_[*tensor] = true;
    }
  }

  /// Its tensors that lie on its mesh are in the chunk of the first operator.
  void chunk(std::size_t at, int chunk) {
    const GraphOperator& one = graph_.operators[at];
    meshes_.operator_chunks[at] = one.annotation.chunk_id.value_or(chunk);
    for (const auto* arguments : {&one.inputs, &one.outputs}) {
      for (const auto& tensor : tensors_of(*arguments)) {
        if (!tensor || meshes_.chunk_from[*tensor]) continue;
        const bool is_there = mesh(meshes_.of_tensors[*tensor]) == mesh(meshes_.of_operators[at]);
        if (is_there) meshes_.chunk_from[*tensor] = at;
      }
    }
  }

  /// Where the last part is on the first stage, so is what stands behind the layers.
  void bring_loss_to_first() {
    for (std::size_t place = layers_.back().last + 1; place < program_.size(); ++place) {
      chunk(program_[place], pipeline_.vpp_degree - 1);
      move(program_[place], stages_.front());
    }
  }

  const OperatorGraph& graph_;
  const GraphPipeline& pipeline_;
  GraphMeshes& meshes_;
  std::vector<std::size_t> program_;
  std::vector<std::size_t> stages_;  // their meshes
  std::vector<GraphLayer> layers_;
  std::vector<bool> is_moved_;  // tensors
  bool moves_ = false;
};

}  // namespace

void assign_chunks(const OperatorGraph& graph, GraphMeshes& meshes) {
  if (graph.pipeline && graph.pipeline->vpp_degree > 1) ChunkAssignment(graph, meshes).assign();
}

}  // namespace pipewright::spmd
