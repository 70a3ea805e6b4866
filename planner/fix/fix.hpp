// Fixes for a Program that hangs: `check --fix`. From the least change up: group the transfers,
// move transfer ends, order runs by the parity of the rank, split the channel per direction, and
// where the computations alone wait for each other, one more warm-up step. Each fix is proved by
// the engine's own check before it is reported. Pure and deterministic; no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "core/program/wait_for.hpp"

namespace pipewright::planner {

/// What a fix changes, the least first.
enum class Touches : std::uint8_t { Policy, Transfers, Computations };
std::string_view to_string(Touches touches);

struct Change {
  std::string sentence;  // what to do, as a person would say it
  Touches touches = Touches::Policy;
};

struct Fix {
  std::string name;  // "group", "hoist", "group-hoist", "post-early", "list-anew", "even-odd",
                     // "split-channel", "split-channel-early", "warm-up"; of what limits issuing:
                     // "warm-up-exchange", "more-in-flight", "lift-limits"; of calls:
                     // "one-call-order", "batches-apart"
  Change change;
  CommPolicy policy;
  Order order;                          // with its transfer ends, as the fixed lists hold them
  std::vector<std::string> difference;  // what is different, a line a field or a rank
  /// Time of one step under the caller's costs. Before: the same computations, lowered as lower()
  /// does by itself and run in groups (nothing where that does not end, as in a fragment). After:
  /// the fixed Program.
  std::optional<std::int64_t> step_ns_before;
  std::int64_t step_ns_after = 0;

  /// By how much the fix changes the step, in percent of step_ns_before: above 0 is slower. 0
  /// without a step before.
  double cost_percent() const;
};

struct Attempt {
  std::string name, why;  // why it is no fix here
};

struct FixReport {
  Verdict verdict = Verdict::Ok;  // of the order as it was given
  /// All of them proved, the least change first. Among those that place transfer ends again (hoist,
  /// group-hoist, post-early, list-anew) a larger change goes first where it saves more than 5% of
  /// the step.
  std::vector<Fix> fixes;
  std::vector<Attempt> failed;
  /// One sentence: what to do, or why nothing helps.
  std::string sentence;
};

/// Reads the order under the policy, and if it hangs or mismatches tries every fix: at most ten
/// simulations besides four readings for the moves, and for the warm-up at most 17 checks.
FixReport find_fixes(const Order& order, const CommPolicy& policy, const CostTable& costs,
                     const LowerOptions& options = {});

}  // namespace pipewright::planner
