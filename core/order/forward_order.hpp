// Orders without a backward: what evaluates a model, or predicts with it (docs/semantics.md §7).
// Pure functions.
#pragma once

#include "core/order/order.hpp"

namespace pipewright {

/// What only a training has: the passes back, and what they send.
constexpr bool belongs_to_backward(ActionKind k) {
  return (is_compute(k) && k != ActionKind::F) || k == ActionKind::SendB || k == ActionKind::RecvB;
}

/// True if it holds no I, W, B, SEND_B and RECV_B.
bool is_forward_only(const Order& order);

/// The forwards of any order, each rank's in the order in which it takes them, with their transfer
/// ends where these are written. Of a pair its F remains; weight versions go, because nothing
/// updates the weights. The placement stays. Without idle slots.
Order forward_order(const Order& order);

}  // namespace pipewright
