// What a fix changed, in lines for a person. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "planner/fix/hoisting.hpp"

namespace pipewright::planner {

/// "issue: inline -> grouped", a line a field that differs.
std::vector<std::string> policy_difference(const CommPolicy& from, const CommPolicy& to);

/// "rank 0: 0RECV_B0 before 0SEND_F2, and 5 more", a line a rank.
std::vector<std::string> move_difference(const std::vector<Hoist>& moves);

/// By rank, how many instructions of the list stand elsewhere, and the first of them.
std::vector<std::string> list_difference(const Order& from, const Order& to);

/// "1 receive", "3 receives and 1 send".
std::string count_of_moves(const std::vector<Hoist>& moves);

}  // namespace pipewright::planner
