// The list of actions that PyTorch's pipelining runtime takes literally: an order as
// _load_csv(file, format="compute_comms") reads it. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/order/order.hpp"

namespace pipewright::planner {

/// 2.13: UNSHARD and RESHARD, without which a sharded stage fails, REDUCE_GRAD, without which
/// gradients are micro-batches times too large, transfers. 2.15 asks for waits as well: one for
/// each REDUCE_GRAD and each SEND.
enum class TorchRelease : std::uint8_t { V2_13, V2_15 };
/// "2.13" or "2.15"; nullopt: another one.
std::optional<TorchRelease> torch_release(std::string_view name);
std::string_view to_string(TorchRelease release);

/// What PyTorch's runtime cannot do of the order, as a sentence: updates and weight versions inside
/// a step, a stage on several ranks. nullopt: nothing.
std::optional<std::string> torch_refusal_of(const Order& order);

/// What PyTorch lowers itself (format="compute_only") holds nothing else.
bool holds_computations_alone(const Order& order);

/// The order with all that the release's runtime needs, where the release's own lowering puts it
/// (torch/distributed/pipelining/schedules.py, its defaults); empty cells go. Kinds of actions that
/// the order writes itself are left as they are: of transfers, collectives and waits only what is
/// missing is added. Where several stages are freed at one place they are in ascending order.
Order torch_actions(const Order& order, TorchRelease release);

}  // namespace pipewright::planner
