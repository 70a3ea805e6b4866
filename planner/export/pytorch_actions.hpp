// The list of actions that PyTorch's pipelining runtime takes literally: an order as
// _load_csv(file, format="compute_comms") reads it. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/order/order.hpp"
#include "sim/torch_group.hpp"

namespace pipewright::planner {

/// 2.13: UNSHARD and RESHARD, without which a sharded stage fails, REDUCE_GRAD, without which
/// gradients are micro-batches times too large, transfers. 2.15 asks for waits as well: one for
/// each REDUCE_GRAD and each SEND.
enum class TorchRelease : std::uint8_t { V2_13, V2_15 };
/// "2.13" or "2.15"; nullopt: another one.
std::optional<TorchRelease> torch_release(std::string_view name);
std::string_view to_string(TorchRelease release);
/// The lists that a release takes: before 2.15 those of 2.13.
TorchRelease lists_of(const sim::TorchVersion& version);

/// What PyTorch's runtime cannot do of the order, as a sentence: updates and weight versions inside
/// a step, a stage on several ranks, calls of one's own, a last stage that computes its forwards
/// out of order (the runtime takes the losses for those of the micro-batches in ascending order).
/// nullopt: nothing.
std::optional<std::string> torch_refusal_of(const Order& order);

/// The same of a step of a training, which has passes back.
std::optional<std::string> torch_training_refusal_of(const Order& order);

/// What PyTorch lowers itself (format="compute_only") holds nothing else.
bool holds_computations_alone(const Order& order);

/// The order with all that the release's runtime needs, where the release's own lowering puts it
/// (torch/distributed/pipelining/schedules.py, its defaults); empty cells go. Kinds of actions that
/// the order writes itself are left as they are: of transfers, collectives and waits only what is
/// missing is added. Where several stages are freed at one place they are in ascending order.
Order torch_actions(const Order& order, TorchRelease release);

/// What the runtime's _load_csv() is given.
struct TorchFile {
  std::string csv;
  /// "compute_only": the computations, to which PyTorch adds its own; "compute_comms": every
  /// action of the release, because the order writes more than its computations.
  std::string_view format;
};
/// Of an order that torch_refusal_of() does not refuse.
TorchFile torch_file(const Order& order, TorchRelease release);

}  // namespace pipewright::planner
