// Calls as the objects of an order.json:
//   {"kind": "ALL_TO_ALL", "group": "ep", "id": "7", "shape": [4, 1024], "dtype": "bfloat16"}
//   {"kind": "SEND", "to": 2, "name": "skip"}   {"kind": "RECV", "from": 0, "name": "skip"}
//   {"kind": "NEW_GROUP", "group": "ep"}   {"kind": "HOST_SYNC", "stream": 2}
//   {"kind": "BATCH_P2P", "ends": ["0SEND_F0", {"kind": "RECV", "from": 1}]}
#pragma once

#include <vector>

#include "core/base/json.hpp"
#include "core/order/call.hpp"

namespace pipewright {

/// One cell, or those of a batch. Throws InputError with file and pointer.
std::vector<Cell> read_call_cells(const JsonCursor& value, CallTable& calls);

}  // namespace pipewright
