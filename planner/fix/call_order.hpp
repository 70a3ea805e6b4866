// One order for the calls of all ranks. Pure functions.
#pragma once

#include <string>

#include "core/order/order.hpp"

namespace pipewright::planner {

struct CallOrder {
  Order order;
  std::string refusal;  // not empty: no such order is found, and why
};

/// Every rank takes its collectives of groups, and its NEW_GROUPs, in one order: those of rank 0 as
/// they stand, then what is left of rank 1, and so on. Cells that are no such calls stay where they
/// are. Refused where a rank of a group lacks a collective that another has.
CallOrder calls_in_one_order(const Order& order);

}  // namespace pipewright::planner
