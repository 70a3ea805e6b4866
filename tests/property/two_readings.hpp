// One case for both readings of docs/semantics.md: the library (core, sim) and the slow interpreter
// of tests/reference/.
#pragma once

#include <string>

#include "core/costs/costs.hpp"
#include "core/order/order.hpp"
#include "core/program/program.hpp"
#include "tests/reference/order.hpp"
#include "tests/reference/policy.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {

/// Everything that both are given.
struct Case {
  reference::Order order;
  reference::Policy policy;
  reference::Costs costs;  // as in random_costs(): the same for every micro-batch
  bool fragment = false;
  reference::Heading heading = {};
};

// Both answers in one form, a line a fact, to be compared as text: the lists, the verdict, when
// each instruction ended, the heads and the cycle, the figures of what has finished.
[[nodiscard]] std::string of_library(const Case& c);
[[nodiscard]] std::string of_reference(const Case& c);

/// The case as the library reads it.
[[nodiscard]] Order order_of(const Case& c);
[[nodiscard]] Program program_of(const Case& c);
[[nodiscard]] CostTable costs_of(const Case& c);

/// Whether an action is doubled, or a stage and micro-batch stand on two ranks. Such an order is
/// refused if it is whole; of a fragment the page does not say what it means.
[[nodiscard]] bool contradicts_itself(const reference::Order& order);

/// Puts calls between the cells of two cases in five, or in their place.
void add_calls_to_some(reference::Dice dice, Case& c);
/// The same of parts, in two cases of five.
void add_parts_to_some(reference::Dice dice, Case& c);
/// Makes one in four of those without weight versions one in which replicas divide more than the
/// update.
void add_sharding_to_some(reference::Dice dice, Case& c);
/// Drops the parts of stages and kinds that the order does not compute.
void drop_idle_parts(Case& c);
/// Calls name ranks by number, or ranks are devices, and one has no action: a row without any is
/// none. Or ranks are no whole blocks of devices.
[[nodiscard]] bool loses_a_rank(const Case& c);

/// The case in words.
[[nodiscard]] std::string shown(const Case& c);

}  // namespace pipewright::tests
