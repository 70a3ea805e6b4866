// What PyTorch's operations are in an order.
#pragma once

#include <cstdint>

#include "core/order/call.hpp"
#include "sim/dumps/dump.hpp"

namespace pipewright::sim {

/// The call as an order has it, without what a communicator makes of it: its kind, the operation as
/// its data, how many elements and of what type, as far as the members of a group, or the two ends
/// of a transfer, have to agree about it.
Call call_of(const RecordedCall& call, const RecordedGroup& group);

/// Of all tensors together; at most kMostBytes.
std::int64_t elements_of(const Tensors& tensors);

}  // namespace pipewright::sim
