// Synthesis: searches for an order that is better than any named schedule, for given costs, memory
// and placement. The model is policy preset `ideal` (docs/semantics.md): a latency on each
// dependency between ranks and nothing else; every figure that is returned is what sim::simulate()
// gives for the order under that preset.
//
// The search, in this order: named schedules of the registry and list scheduling give first orders
// (planner/synthesis/construct.hpp), the rules of the list scheduler are tuned, single actions are
// moved (planner/synthesis/improve.hpp), and on request small cases are closed by branch and bound
// (planner/synthesis/prove.hpp). A lower bound is given in every case
// (planner/synthesis/bound.hpp).
//
// Where single actions have times of their own, the turns of micro-batches are searched too
// (planner/synthesis/turns.hpp); there is no proof by branch and bound then.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/order.hpp"
#include "planner/synthesis/scope.hpp"

namespace pipewright::planner {

/// What is to be short. The step takes the makespan; the span is the zero-bubble papers' figure:
/// the longest time of a rank from its first start to its last end, which lets ranks of one step
/// overlap with those of the next.
enum class Objective : std::uint8_t { Makespan, Span };
/// "makespan", "span".
std::string_view to_string(Objective objective);

/// Time that an action takes in a trial on an ordinary core, with room to spare: what turns the
/// budget into a number of trials. No clock is asked, so that every machine tries the same.
inline constexpr std::int64_t kNanosecondsAStep = 60;

struct SynthesisProgress {
  std::int64_t elapsed_ns = 0;
  std::int64_t value_ns = 0, lower_bound_ns = 0;
  std::string_view phase;  // "named schedules", "list scheduling", "moves", "proof"
};

struct SynthesisRequest {
  Placement placement;  // by stage; one that looks at the micro-batch is refused
  int micro_batches = 1;
  /// Durations stage by stage (all of placement.stages() have to be there), latencies, and memory.
  /// `actions`: of as many replicas as it has, which all take the order; the value is that of the
  /// slowest. Its pairs are not looked at.
  /// Without a memory table a live activation counts one unit from its F to its W.
  CostTable costs;
  /// By rank, for costs.memory with its constant part; one entry: for every rank; 0 or none: no
  /// limit.
  std::vector<Bytes> memory_limit;
  Objective objective = Objective::Makespan;
  /// The makespan includes the updates (OPT, one after the other) with which each rank ends.
  bool with_updates = false;
  /// Orders of F, I, W; false: of F and B. Where B is shorter than I and W together, true searches
  /// both kinds (and the lower bound is for these two, not for mixtures).
  bool split_backward = true;
  bool only_split = false;  // of F, I, W alone, whatever B takes
  std::uint64_t seed = 1;
  /// Orders to begin with, by name, where they fit the placement and keep to the limit.
  std::vector<std::pair<std::string, Order>> starts;
  bool named_schedules = true;  // begin with those of the registry too
  int runners_up = 0;           // fill SynthesisResult::runners_up with so many
  /// Only values below are wanted (0: any): the search ends where none can be.
  std::int64_t wanted_below_ns = 0;
  /// How long to search, on a core that keeps the pace of an ordinary one: how much is tried
  /// follows from this alone, on any machine.
  std::int64_t budget_ns = 1'000'000'000;
  /// Instead: how many actions to place and time in trials, however long it takes. 0: by budget_ns.
  std::int64_t steps = 0;
  /// Branch and bound after the search, on top of the budget, with at most prove_nodes nodes.
  bool prove = false;
  std::int64_t prove_nodes = 20'000'000;
  /// Called from the calling thread at each improvement and each new phase.
  std::function<void(const SynthesisProgress&)> on_progress;
};

struct SynthesisResult {
  /// Nothing where no order keeps to the limit (or, where micro-batches leave memory behind, not
  /// even the one that does them one by one).
  std::optional<Order> order;
  /// Orders that were the best until a better one was found, the last first.
  std::vector<Order> runners_up;
  /// Where there is no order: by rank, the least limit under which there is one. Exact where F
  /// takes memory, I and W give back, and a micro-batch leaves nothing behind; else one that works.
  std::vector<Bytes> least_limit;

  Objective objective = Objective::Makespan;  // the request's
  std::int64_t value_ns = 0;                  // of it
  std::int64_t makespan_ns = 0, span_ns = 0;
  /// No order of the scope has a value below. (If it was branch and bound that gave it, and the
  /// objective is the span: none of the orders in which each stage takes its micro-batches in
  /// order; see planner/synthesis/prove.hpp.)
  std::int64_t lower_bound_ns = 0;
  BoundScope scope;
  double gap = 0;       // value / lower bound - 1
  bool proven = false;  // the value is the lower bound
  /// What gave the first version of the order: "list scheduling", or a schedule's name. It is that
  /// schedule's own order where value_ns is best_named_ns.
  std::string found_by;
  /// The best named schedule that keeps to the limit, as it is, and its value; "" where there is
  /// none.
  std::string best_named;
  std::int64_t best_named_ns = 0;
  int best_named_chunks = 0;   // stages a rank
  std::int64_t evaluated = 0;  // orders that were timed, and nodes of the proof
  std::int64_t elapsed_ns = 0;
};

/// Deterministic for a request. Throws InputError for a request that has no meaning; a limit that
/// is too low is a result. Pure: many threads may call it.
SynthesisResult synthesise(const SynthesisRequest& request);

/// No order that synthesise() looks at has a value below; without a search. O(actions), and a sort.
/// Throws as synthesise().
std::int64_t synthesis_bound(const SynthesisRequest& request);

}  // namespace pipewright::planner
