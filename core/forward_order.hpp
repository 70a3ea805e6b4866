// Orders without a backward: what evaluates a model, or predicts with it (docs/semantics.md §7).
// Pure functions.
#pragma once

#include "core/order.hpp"

namespace pipewright {

struct Program;

/// True if it holds no I, W, B, SEND_B and RECV_B.
bool is_forward_only(const Order& order);
/// The same of what an order has become.
bool is_forward_only(const Program& program);

/// The forwards of any order, each rank's in the order in which it takes them, with their transfer
/// ends where these are written. Of a pair its F remains; weight versions go, because nothing
/// updates the weights. The placement stays. Without idle slots.
Order forward_order(const Order& order);

}  // namespace pipewright
