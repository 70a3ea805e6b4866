#include "core/spmd/graph/step_memory.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace pipewright::spmd {
namespace {

constexpr std::int64_t kElementBytes = 4;

/// One process's walk, with the layouts alone.
class Walk {
 public:
  Walk(const OperatorGraph& graph, const TrainingSteps& steps, int rank)
      : graph_(graph),
        steps_(steps),
        rank_(rank),
        held_(steps.arrays.size()),
        count_(graph, steps) {}

  StepMemory most(const std::vector<std::vector<std::size_t>>& dropped) {
    const auto producers = producers_of(graph_);
    for (std::size_t tensor = 0; tensor < producers.size(); ++tensor) {
      if (!producers[tensor]) hold(steps_.lying[tensor]);
    }
    for (const TrainingStep& step : steps_.steps) {
      if (step.kind == TrainingStep::Kind::Update) add_states(step);
    }
    if (const ArrayPlace loss = steps_.gradients[steps_.loss]) hold(*loss);
    for (std::size_t at = 0; at < steps_.steps.size(); ++at) {
      for (const std::size_t array : arrays_of(steps_.steps[at])) hold(array);
      for (const std::size_t array : dropped[at]) {
        if (held_[array]) count_.drop(array, *std::exchange(held_[array], std::nullopt));
      }
    }
    return count_.most();
  }

 private:
  std::optional<std::int64_t> elements(std::size_t at) const {
    const TrainingArray& array = steps_.arrays[at];
    const ProcessMesh& mesh = graph_.meshes[array.mesh].mesh;
    const auto found = std::ranges::find(mesh.ranks, rank_);
    if (found == mesh.ranks.end()) return std::nullopt;
    const Tensor tensor{graph_.tensors[array.tensor].shape, array.layout};
    std::int64_t count = 1;
    const auto place = static_cast<std::size_t>(found - mesh.ranks.begin());
    for (const std::int64_t size : local_part(tensor, mesh, place).shape) count *= size;
    return count;
  }

  void hold(std::size_t array) {
    if (held_[array]) return;
    held_[array] = elements(array);
    if (held_[array]) count_.hold(array, *held_[array]);
  }

  void add_states(const TrainingStep& update) {
    const auto states = static_cast<std::int64_t>(states_of(graph_.optimizer.kind).size());
    count_.keep_states(states * elements(*update.inputs[0]).value_or(0));
  }

  const OperatorGraph& graph_;
  const TrainingSteps& steps_;
  const int rank_;
  std::vector<std::optional<std::int64_t>> held_;  // elements by array
  HeldMemory count_;
};

}  // namespace

std::vector<std::vector<std::size_t>> last_uses(const OperatorGraph& completed,
                                                const TrainingSteps& steps) {
  std::vector<bool> stays(steps.arrays.size());
  const auto producers = producers_of(completed);
  for (std::size_t tensor = 0; tensor < producers.size(); ++tensor) {
    if (!producers[tensor] || tensor == steps.loss) stays[steps.lying[tensor]] = true;
  }
  std::vector<std::vector<std::size_t>> dropped(steps.steps.size());
  for (std::size_t at = steps.steps.size(); at-- > 0;) {
    for (const std::size_t array : arrays_of(steps.steps[at])) {
      if (stays[array]) continue;
      stays[array] = true;  // no earlier use is the last
      dropped[at].push_back(array);
    }
  }
  return dropped;
}

StepMemory most_of(const StepMemory& one, const StepMemory& other) {
  return {std::max(one.parameters, other.parameters), std::max(one.gradients, other.gradients),
          std::max(one.states, other.states), std::max(one.all, other.all)};
}

HeldMemory::HeldMemory(const OperatorGraph& graph, const TrainingSteps& steps)
    : graph_(graph), steps_(steps) {}

void HeldMemory::hold(std::size_t array, std::int64_t elements) {
  const TrainingArray& one = steps_.arrays[array];
  const std::int64_t bytes = kElementBytes * elements;
  if (graph_.tensors[one.tensor].role == TensorRole::Parameter) {
    (one.is_gradient ? now_.gradients : now_.parameters) += bytes;
  }
  now_.all += bytes;
  raise();
}

void HeldMemory::keep_states(std::int64_t elements) {
  now_.states += kElementBytes * elements;
  now_.all += kElementBytes * elements;
  raise();
}

void HeldMemory::raise() { most_ = most_of(most_, now_); }

StepMemory memory_of(const OperatorGraph& completed, const TrainingSteps& steps) {
  std::set<int> ranks;
  for (const NamedMesh& one : completed.meshes) {
    ranks.insert(one.mesh.ranks.begin(), one.mesh.ranks.end());
  }
  const auto dropped = last_uses(completed, steps);
  StepMemory most;
  for (const int rank : ranks) most = most_of(most, Walk(completed, steps, rank).most(dropped));
  return most;
}

}  // namespace pipewright::spmd
