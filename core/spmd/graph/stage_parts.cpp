#include "core/spmd/graph/stage_parts.hpp"

#include <algorithm>

#include "core/spmd/graph/step_calls.hpp"

namespace pipewright::spmd {
namespace {

/// As the axes are: of dimensions with two processes or more, the last one first. A group passes
/// over none of those between its outermost and its innermost one.
std::string group_along(const ProcessMesh& mesh, const std::vector<int>& dims) {
  const auto [first, last] = std::ranges::minmax(dims);
  std::string name;
  for (int dim = last; dim >= first; --dim) {
    if (mesh.size(dim) < 2) continue;
    if (!name.empty()) name += "+";
    name += as_call_name(mesh.dim_names[static_cast<std::size_t>(dim)]);
  }
  return name;
}

std::vector<int> all_dims(const ProcessMesh& mesh) {
  std::vector<int> dims;
  for (int dim = 0; dim < mesh.dims(); ++dim) dims.push_back(dim);
  return dims;
}

class Listing {
 public:
  Listing(const OperatorGraph& graph, const TrainingSteps& steps, const PipelineSteps& sorted)
      : graph_(graph), steps_(steps), sorted_(sorted) {}

  void add_step(std::size_t at, ActionKind kind) {
    const TrainingStep& step = steps_.steps[at];
    if (step.kind == TrainingStep::Kind::Move) {
      if (kind == ActionKind::W || is_of_parameter(step)) return;
      const std::size_t message = sorted_.message_of_step[at];
      const bool arrives = message != PipelineSteps::kNoMessage;
      add_moves(at, arrives ? sorted_.messages[message].first + 1 : 0, step.plan.steps.size());
    } else if (step.kind == TrainingStep::Kind::Forward) {
      add_computation(at);
      add_sums_of_classes(at);
    } else {
      const std::vector<bool> computed = gradients_in(kind, graph_, steps_, step);
      if (std::ranges::count(computed, true) > 0) add_computation(at);
    }
  }

  /// The steps of a message's plan that come before it leaves.
  void add_sent(const StageMessage& message) { add_moves(message.step, 0, message.first); }

  std::vector<StagePart> take() && { return std::move(parts_); }

 private:
  bool is_of_parameter(const TrainingStep& move) const {
    return graph_.tensors[move.at].role == TensorRole::Parameter;
  }

  void add_computation(std::size_t at) {
    const std::string& name = graph_.operators[steps_.steps[at].at].name;
    parts_.push_back({.call = {.kind = ActionKind::Part, .data = as_call_name(name)}, .step = at});
  }

  void add_call(ActionKind kind, const ProcessMesh& mesh, const std::vector<int>& dims,
                const std::string& data, std::size_t step, std::size_t place) {
    const std::string group = group_along(mesh, dims);
    if (group.empty()) return;  // each process by itself
    parts_.push_back({.call = {.kind = kind, .group = group, .data = as_call_name(data)},
                      .step = step,
                      .place = place});
  }

  void add_moves(std::size_t at, std::size_t begin, std::size_t end) {
    const TrainingStep& step = steps_.steps[at];
    const TrainingArray& to = steps_.arrays[*step.outputs[0]];
    const std::string data = graph_.tensors[step.at].name + (to.is_gradient ? ".gradient" : "");
    for (std::size_t place = begin; place < end; ++place) {
      const ReshardStep& one = step.plan.steps[place];
      const auto kind = kind_of_call(one.kind);
      if (!kind) continue;
      const ProcessMesh& mesh = one.after.mesh;
      add_call(*kind, mesh, one.kind == ReshardStep::Kind::Exchange ? all_dims(mesh) : dims_of(one),
               data, at, place);
    }
  }

  /// Of the loss over divided classes.
  void add_sums_of_classes(std::size_t at) {
    const GraphOperator& one = graph_.operators[steps_.steps[at].at];
    if (groups_of_classes(graph_, one).empty()) return;
    const ProcessMesh& mesh = graph_.meshes[*one.annotation.mesh].mesh;
    const std::vector<int>& dims = one.annotation.inputs[0]->dims.back();
    for (const char* what : {".largest", ".exponentials"})
      add_call(ActionKind::AllReduce, mesh, dims, one.name + what, at, 0);
  }

  const OperatorGraph& graph_;
  const TrainingSteps& steps_;
  const PipelineSteps& sorted_;
  std::vector<StagePart> parts_;
};

}  // namespace

std::vector<bool> gradients_in(ActionKind kind, const OperatorGraph& completed,
                               const TrainingSteps& steps, const TrainingStep& backward) {
  std::vector<bool> computed;
  for (const ArrayPlace& place : backward.gradients) {
    const bool is_parameter =
        place && completed.tensors[steps.arrays[*place].tensor].role == TensorRole::Parameter;
    computed.push_back(place && (kind == ActionKind::B || is_parameter == (kind == ActionKind::W)));
  }
  return computed;
}

std::optional<std::vector<MeshAxis>> axes_of_stages(const OperatorGraph& completed,
                                                    const PipelineStages& stages) {
  const ProcessMesh& first = completed.meshes[stages.meshes.front()].mesh;
  for (const std::size_t mesh : stages.meshes) {
    const ProcessMesh& one = completed.meshes[mesh].mesh;
    if (one.shape != first.shape || one.dim_names != first.dim_names) return std::nullopt;
  }
  std::vector<MeshAxis> axes;
  for (int dim = first.dims(); dim-- > 0;) {
    const std::string& name = first.dim_names[static_cast<std::size_t>(dim)];
    if (first.size(dim) > 1) axes.push_back({as_call_name(name), first.size(dim)});
  }
  return axes;
}

std::vector<StagePart> parts_of_stage(const OperatorGraph& completed, const TrainingSteps& steps,
                                      const PipelineSteps& sorted, std::size_t stage,
                                      ActionKind kind) {
  Listing listing(completed, steps, sorted);
  const bool is_forward = kind == ActionKind::F;
  for (const std::size_t at : (is_forward ? sorted.forward : sorted.backward)[stage])
    listing.add_step(at, kind);
  if (kind == ActionKind::W) return std::move(listing).take();
  for (const StageMessage& one : sorted.messages) {
    if (one.from == stage && one.is_gradient != is_forward) listing.add_sent(one);
  }
  return std::move(listing).take();
}

}  // namespace pipewright::spmd
