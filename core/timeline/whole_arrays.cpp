#include "core/timeline/whole_arrays.hpp"

#include <utility>

namespace pipewright {

WholeArrays::WholeArrays(const Program& program, const CostTable& costs)
    : memory_(costs.memory),
      sharding_(program.sharding),
      waits_later_(program.policy.issue == Issue::Stream) {
  if (sharding_.divides_gradients()) held_.resize(memory_.size());
}

std::int64_t WholeArrays::let_go_of_gradients(std::size_t stage) {
  const bool held = std::exchange(held_[stage].gradients, Gradients::Divided) != Gradients::Divided;
  return held ? -memory_[stage].whole_gradients.value : 0;
}

std::int64_t WholeArrays::let_go_of_weights(std::size_t stage) {
  return std::exchange(held_[stage].weights, false) ? -memory_[stage].whole_weights.value : 0;
}

std::int64_t WholeArrays::let_go_of_reduced() {
  std::int64_t change = 0;
  for (std::size_t s = 0; s < held_.size(); ++s) {
    if (held_[s].gradients == Gradients::OnTheirWay) change += let_go_of_gradients(s);
  }
  return change;
}

std::int64_t WholeArrays::before(ActionKind kind, int stage) {
  const auto s = static_cast<std::size_t>(stage);
  if (s >= held_.size() || (kind != ActionKind::W && kind != ActionKind::B)) return 0;
  std::int64_t change = let_go_of_reduced();
  if (std::exchange(held_[s].gradients, Gradients::Whole) == Gradients::Divided)
    change += memory_[s].whole_gradients.value;
  return change;
}

std::int64_t WholeArrays::after(const Instruction& in) {
  if (held_.empty()) return 0;
  if (in.kind == ActionKind::Opt) {
    std::int64_t change = let_go_of_reduced();
    for (std::size_t s = 0; s < held_.size(); ++s) change += let_go_of_weights(s);
    return change;
  }
  if (!has_stage(in.kind) || in.stage >= held_.size()) return 0;
  Held& held = held_[in.stage];
  if (in.kind == ActionKind::ReduceGrad && in.in_collective()) {
    if (!waits_later_) return let_go_of_gradients(in.stage);
    if (held.gradients == Gradients::Whole) held.gradients = Gradients::OnTheirWay;
  }
  if (in.kind == ActionKind::Unshard && in.in_collective() && sharding_.divides_weights())
    return std::exchange(held.weights, true) ? 0 : memory_[in.stage].whole_weights.value;
  if (in.kind == ActionKind::Reshard) return let_go_of_weights(in.stage);
  return 0;
}

}  // namespace pipewright
