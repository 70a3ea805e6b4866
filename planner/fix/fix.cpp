#include "planner/fix/fix.hpp"

#include <algorithm>

#include "core/order/problems.hpp"
#include "planner/fix/candidates.hpp"
#include "planner/fix/difference.hpp"
#include "planner/fix/listed_order.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

std::string without_newline(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

/// The first line of what is stuck, after the verdict.
std::string stuck_text(const Program& program, const WaitReport& report) {
  const std::string line = without_newline(describe(program, report));
  return std::string(to_string(report.verdict)) + (line.empty() ? "" : ": " + line);
}

/// Checks the candidates of one order, and keeps those that end.
class Proving {
 public:
  Proving(const Order& order, const CommPolicy& policy, const CostTable& costs,
          const LowerOptions& options, FixReport& report)
      : order_(order), policy_(policy), costs_(costs), options_(options), report_(report) {}

  void try_all() {
    if (!order_.calls.empty()) return try_all_of_calls();
    lift_limits();
    const Order listed = listed_order(order_, policy_);
    baseline_ = baseline_of(listed);
    keep(prove(grouped_transfers(order_, policy_)));
    for (auto& mover : movers(listed)) keep(std::move(mover));
    keep(prove(even_odd_runs(order_, policy_)));
    keep(prove(split_channel(order_, policy_)));
    if (report_.fixes.empty() && policy_.post != Post::Early)
      keep(prove(split_channel_early(order_, policy_)));
    if (!report_.fixes.empty() || options_.fragment) return;
    auto last = prove(warmed_up(listed, policy_, costs_, options_));
    if (last) last->step_ns_before = baseline_of(last->order);
    keep(std::move(last));
  }

 private:
  void try_all_of_calls() {
    keep(prove(one_call_order(order_, policy_)));
    keep(prove(batches_apart(order_, policy_)));
    keep(prove(ready_connections(order_, policy_)));
  }

  /// What holds up the issuing of transfers is lifted first, one limit or both; the other fixes are
  /// looked for without it, and say so.
  void lift_limits() {
    const bool connects = policy_.connect == Connect::FirstUse;
    const bool limited = policy_.in_flight > 0 && policy_.issue == Issue::Stream;
    if (!connects && !limited) return;
    CommPolicy lifted = policy_;
    lifted.connect = Connect::Ready;
    if (limited) lifted.in_flight = 0;
    baseline_ = baseline_of(listed_order(order_, lifted));
    if (connects) keep(prove(ready_connections(order_, policy_)));
    if (limited) keep(prove(more_in_flight(order_, policy_, costs_, options_)));
    if (connects && limited) keep(prove(unlimited_issue(order_, policy_)));
    limits_ = policy_difference(policy_, lifted);
    policy_ = lifted;
  }

  /// The fixes that place the ends again, the one that moves least first, unless another saves more
  /// than a twentieth of its step.
  std::vector<std::optional<Fix>> movers(const Order& listed) {
    std::vector<std::optional<Fix>> found;
    found.push_back(faster_way(listed, moved_ends));
    found.push_back(faster_way(listed, grouped_and_moved));
    found.push_back(prove(early_receives(order_, policy_)));
    if (order_.has_transfers() && !options_.fragment)
      found.push_back(prove(listed_anew(listed, policy_)));
    std::erase(found, std::nullopt);
    const auto fastest = std::min_element(
        found.begin(), found.end(),
        [](const auto& a, const auto& b) { return a->step_ns_after < b->step_ns_after; });
    if (fastest != found.end() &&
        fastest->value().step_ns_after <
            found.front()->step_ns_after - found.front()->step_ns_after / 20) {
      std::rotate(found.begin(), fastest, fastest + 1);
    }
    return found;
  }

  using Mover = FixCandidate (*)(const Order&, const CommPolicy&, const CostTable&,
                                 const LowerOptions&, HoistMoves);

  /// One move a cycle, or moves on every second rank of it: the faster, the first if both are.
  std::optional<Fix> faster_way(const Order& listed, Mover mover) {
    auto found = prove(mover(listed, policy_, costs_, options_, HoistMoves::Fewest));
    if (!found) return found;
    const std::size_t failures = report_.failed.size();
    auto other = prove(mover(listed, policy_, costs_, options_, HoistMoves::EverySecond));
    report_.failed.resize(failures);  // the other way has failed, the fix has not
    if (other && other->step_ns_after < found->step_ns_after) return other;
    return found;
  }

  /// Whether the order has batches that mean more than their transfers one by one; a fix has none.
  bool joins_batches() const {
    if (policy_.batches == Batches::Apart) return false;
    return std::any_of(order_.ranks.begin(), order_.ranks.end(), [](const auto& row) {
      return std::any_of(row.begin(), row.end(), [](const Cell& cell) { return cell.batched; });
    });
  }

  void keep(std::optional<Fix> fix) {
    if (fix) report_.fixes.push_back(std::move(*fix));
  }

  /// The candidate if it ends; else why not is noted.
  std::optional<Fix> prove(FixCandidate candidate) {
    if (!candidate.refusal.empty()) {
      report_.failed.push_back({candidate.fix.name, candidate.refusal});
      return std::nullopt;
    }
    candidate.fix.difference.insert(candidate.fix.difference.begin(), limits_.begin(),
                                    limits_.end());
    if (order_.calls.empty() && joins_batches())
      candidate.fix.difference.push_back("each batch is written as its transfers, one by one");
    const Program program = lower(candidate.fix.order, candidate.fix.policy, options_);
    const sim::Result result = sim::simulate(program, costs_);
    if (!result.finished) {
      const WaitReport stuck =
          explain_stuck(program, result.progress, costs_.message_bytes(program));
      report_.failed.push_back({candidate.fix.name, "still " + stuck_text(program, stuck)});
      return std::nullopt;
    }
    candidate.fix.step_ns_before = baseline_;
    candidate.fix.step_ns_after = result.timeline.makespan_ns;
    return std::move(candidate.fix);
  }

  std::optional<std::int64_t> baseline_of(const Order& listed) const {
    const CommPolicy grouped{.issue = Issue::Grouped,
                             .send_f = policy_.send_f,
                             .send_b = policy_.send_b,
                             .buffers = policy_.buffers};
    const Program program =
        lower(options_.fragment ? listed : computations_of(listed), grouped, options_);
    const sim::Result result = sim::simulate(program, costs_);
    if (!result.finished) return std::nullopt;
    return result.timeline.makespan_ns;
  }

  const Order& order_;
  CommPolicy policy_;                // of the order; once limits are lifted, without them
  std::vector<std::string> limits_;  // lines of the difference: limits that were lifted
  const CostTable& costs_;
  const LowerOptions& options_;
  FixReport& report_;
  std::optional<std::int64_t> baseline_;
};

/// Why nothing helped.
std::string hopeless_text(const Order& order, const CommPolicy& policy, const CostTable& costs,
                          const LowerOptions& options, const FixReport& tried) {
  if (!order.calls.empty()) {
    return "the order of its calls, its batches and its connections were tried; " +
           tried.failed.front().name + ": " + tried.failed.front().why;
  }
  const Program program = lower(order.has_transfers() ? listed_order(order, policy) : order,
                                comm_policy_preset("ideal"), options);
  const WaitReport report = sim::check(program, costs);
  if (report.verdict == Verdict::Ok)
    return "the order hangs under every fix that was tried; make a new one from a schedule";
  if (report.cycle.empty())
    return "it waits for something that lies outside this order; no change to the order can end "
           "that wait";
  return "the computations alone wait for each other, under every policy (" +
         without_newline(describe(program, report)) + "); only another order of them helps";
}

}  // namespace

std::string_view to_string(Touches touches) {
  switch (touches) {
    case Touches::Policy:
      return "policy";
    case Touches::Transfers:
      return "transfers";
    case Touches::Computations:
      return "computations";
  }
  return "policy";
}

double Fix::cost_percent() const {
  if (!step_ns_before || *step_ns_before == 0) return 0;
  return 100.0 * static_cast<double>(step_ns_after - *step_ns_before) /
         static_cast<double>(*step_ns_before);
}

FixReport find_fixes(const Order& order, const CommPolicy& policy, const CostTable& costs,
                     const LowerOptions& options) {
  FixReport report;
  if (!options.fragment) {
    const auto problems = problems_of(order);
    if (!problems.empty()) {
      report.verdict = Verdict::Invalid;
      report.sentence = "the order is not whole (" + problems.front() +
                        "); no change of its communication can fix that";
      return report;
    }
  }
  report.verdict = sim::check(lower(order, policy, options), costs).verdict;
  if (report.verdict == Verdict::Ok) {
    report.sentence = "it ends as it is: there is nothing to fix";
    return report;
  }
  Proving(order, policy, costs, options, report).try_all();
  report.sentence = report.fixes.empty() ? hopeless_text(order, policy, costs, options, report)
                                         : report.fixes.front().change.sentence;
  return report;
}

}  // namespace pipewright::planner
