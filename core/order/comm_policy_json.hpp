// CommPolicy as job and plan files write it: a preset's name, or an object of its fields.
#pragma once

#include "core/base/json.hpp"
#include "core/order/comm_policy.hpp"

namespace pipewright {

/// Fields that are left out keep the value of "preset" if the object has one, else the default.
CommPolicy read_comm_policy(const JsonCursor& value);
Json to_json(const CommPolicy& policy);

}  // namespace pipewright
