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
    if (action.kind != ActionKind::F && action.kind != ActionKind::I &&
        action.kind != ActionKind::B)
      return nullptr;
    std::optional<Tensor>* const slot = slot_of_input(*this, action);
    return slot != nullptr && *slot ? &**slot : nullptr;
  }
  /// Whether what an F, or a backward, reads from the stage beside it is there.
  bool has_input(const Action& action) const {
    const std::optional<Tensor>* const slot = slot_of_input(*this, action);
    return slot == nullptr || slot->has_value();
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

  /// Of an F or a backward; null at the end of the chain.
  template <class Self>
  static auto slot_of_input(Self& self, const Action& action)
      -> decltype(&self.activations_[std::size_t{0}]) {
    const bool is_forward = action.kind == ActionKind::F;
    const int from = action.stage.value + (is_forward ? -1 : 1);
    if (from < 0 || from == self.stages_) return nullptr;
    auto& all = is_forward ? self.activations_ : self.gradients_;
    return &all[self.place(from, action.micro_batch.value)];
  }
  Slots& slots(Flow flow) { return flow == Flow::Activation ? activations_ : gradients_; }
  std::size_t place(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }

  int stages_;
  std::size_t micro_batches_;
  Slots activations_, gradients_;
};

}  // namespace pipewright::exec
