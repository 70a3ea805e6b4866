// The activations and gradients of a rank that wait for their next reader, by the producing stage
// and the micro-batch. Owns them; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/order/action.hpp"

namespace pipewright::exec {

enum class Flow : std::uint8_t { Activation, Gradient };

/// A transfer end carries one of the two.
constexpr Flow flow_of(ActionKind end) {
  return end == ActionKind::SendF || end == ActionKind::RecvF ? Flow::Activation : Flow::Gradient;
}

template <class Tensor>
class WaitingTensors {
 public:
  WaitingTensors(int stages, int micro_batches)
      : stages_(stages), micro_batches_(static_cast<std::size_t>(micro_batches)) {
    const std::size_t count = static_cast<std::size_t>(stages) * micro_batches_;
    activations_.resize(count);
    gradients_.resize(count);
  }

  void put(Flow flow, int stage, int micro_batch, Tensor tensor) {
    slots(flow)[place(stage, micro_batch)] = std::move(tensor);
  }
  bool has(Flow flow, int stage, int micro_batch) const {
    return (flow == Flow::Activation ? activations_ : gradients_)[place(stage, micro_batch)]
        .has_value();
  }
  void clear() {
    for (Slots* slots : {&activations_, &gradients_})
      for (std::optional<Tensor>& slot : *slots) slot.reset();
  }
  /// Throws RunError if it is not there.
  Tensor take(Flow flow, int stage, int micro_batch) {
    std::optional<Tensor>& slot = slots(flow)[place(stage, micro_batch)];
    if (!slot) {
      throw RunError(std::string("the ") + (flow == Flow::Activation ? "activation" : "gradient") +
                     " of stage " + std::to_string(stage) + " for m" + std::to_string(micro_batch) +
                     " is not there");
    }
    return *std::exchange(slot, std::nullopt);
  }

  /// What an F, an I or a B reads from the stage beside it; null where that is nothing, or not
  /// there.
  Tensor* find_input(const Action& action) {
    const int stage = action.stage.value, micro_batch = action.micro_batch.value;
    const bool is_forward = action.kind == ActionKind::F;
    if (!is_forward && action.kind != ActionKind::I && action.kind != ActionKind::B) return nullptr;
    const int from = is_forward ? stage - 1 : stage + 1;
    if (from < 0 || from == stages_) return nullptr;
    auto& slot = slots(is_forward ? Flow::Activation : Flow::Gradient)[place(from, micro_batch)];
    return slot ? &*slot : nullptr;
  }
  /// Whether what an F, or a backward, reads from the stage beside it is there.
  bool has_input(const Action& action) const {
    const int stage = action.stage.value, micro_batch = action.micro_batch.value;
    if (action.kind == ActionKind::F)
      return stage == 0 || activations_[place(stage - 1, micro_batch)].has_value();
    return stage + 1 == stages_ || gradients_[place(stage + 1, micro_batch)].has_value();
  }
  /// Calls visit(action) for what the cell asks for. The two of a pair may feed each other; then
  /// the one that feeds goes first.
  template <class Visit>
  void for_each_action(const Cell& cell, Visit visit) const {
    const bool swapped = cell.partner && !has_input(cell.action) && has_input(*cell.partner);
    if (swapped) visit(*cell.partner);
    visit(cell.action);
    if (cell.partner && !swapped) visit(*cell.partner);
  }

 private:
  using Slots = std::vector<std::optional<Tensor>>;

  Slots& slots(Flow flow) { return flow == Flow::Activation ? activations_ : gradients_; }
  std::size_t place(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }

  int stages_;
  std::size_t micro_batches_;
  Slots activations_, gradients_;
};

}  // namespace pipewright::exec
