#include "planner/cure/cure.hpp"
#include "core/order_problems.hpp"

#include <algorithm>
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
#include "planner/cure/candidates.hpp"
#include "planner/cure/listed_order.hpp"
#include "sim/engine.hpp"

#include "core/order_problems.hpp"
namespace pipewright::planner {
#include "core/order_problems.hpp"
namespace {
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
std::string without_newline(std::string text) {
#include "core/order_problems.hpp"
  text.resize(std::min(text.find('\n'), text.size()));
#include "core/order_problems.hpp"
  return text;
#include "core/order_problems.hpp"
}
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
/// The first line of what is stuck, after the verdict.
#include "core/order_problems.hpp"
std::string stuck_text(const Program& program, const WaitReport& report) {
#include "core/order_problems.hpp"
  const std::string line = without_newline(describe(program, report));
#include "core/order_problems.hpp"
  return std::string(to_string(report.verdict)) + (line.empty() ? "" : ": " + line);
#include "core/order_problems.hpp"
}
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
/// Checks the candidates of one order, and keeps those that end.
#include "core/order_problems.hpp"
class Proving {
#include "core/order_problems.hpp"
 public:
#include "core/order_problems.hpp"
  Proving(const Order& order, const CommPolicy& policy, const CostTable& costs,
#include "core/order_problems.hpp"
          const LowerOptions& options, CureReport& report)
#include "core/order_problems.hpp"
      : order_(order), policy_(policy), costs_(costs), options_(options), report_(report) {
  }
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
  void try_all() {
#include "core/order_problems.hpp"
    const Order listed = listed_order(order_, policy_);
#include "core/order_problems.hpp"
    baseline_ = baseline_of(listed);
#include "core/order_problems.hpp"
    keep(prove(grouped_transfers(order_, policy_)));
#include "core/order_problems.hpp"
    for (auto& mover : movers(listed)) keep(std::move(mover));
#include "core/order_problems.hpp"
    keep(prove(even_odd_runs(order_, policy_)));
#include "core/order_problems.hpp"
    keep(prove(split_channel(order_, policy_)));
#include "core/order_problems.hpp"
    if (!report_.cures.empty() || options_.fragment) return;
#include "core/order_problems.hpp"
    auto last = prove(warmed_up(listed, policy_, costs_, options_));
#include "core/order_problems.hpp"
    if (last) last->step_ns_before = baseline_of(last->order);
#include "core/order_problems.hpp"
    keep(std::move(last));
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
 private:
#include "core/order_problems.hpp"
  /// The cures that place the ends anew, the one that moves least first, unless another saves more
#include "core/order_problems.hpp"
  /// than a twentieth of its step.
#include "core/order_problems.hpp"
  std::vector<std::optional<Cure>> movers(const Order& listed) {
#include "core/order_problems.hpp"
    std::vector<std::optional<Cure>> found;
#include "core/order_problems.hpp"
    found.push_back(prove(moved_ends(listed, policy_, costs_, options_, HoistMoves::Fewest)));
#include "core/order_problems.hpp"
    if (found.front()) {
#include "core/order_problems.hpp"
      auto other = prove(moved_ends(listed, policy_, costs_, options_, HoistMoves::EverySecond));
#include "core/order_problems.hpp"
      if (other && other->step_ns_after < found.front()->step_ns_after)
#include "core/order_problems.hpp"
        found.front() = std::move(other);
#include "core/order_problems.hpp"
    }
#include "core/order_problems.hpp"
    found.push_back(prove(early_receives(order_, policy_)));
#include "core/order_problems.hpp"
    if (order_.has_transfers() && !options_.fragment)
#include "core/order_problems.hpp"
      found.push_back(prove(listed_anew(listed, policy_)));
#include "core/order_problems.hpp"
    std::erase(found, std::nullopt);
#include "core/order_problems.hpp"
    const auto fastest = std::min_element(
#include "core/order_problems.hpp"
        found.begin(), found.end(),
#include "core/order_problems.hpp"
        [](const auto& a, const auto& b) { return a->step_ns_after < b->step_ns_after; });
#include "core/order_problems.hpp"
    if (fastest != found.end() &&
#include "core/order_problems.hpp"
        fastest->value().step_ns_after <
#include "core/order_problems.hpp"
            found.front()->step_ns_after - found.front()->step_ns_after / 20) {
#include "core/order_problems.hpp"
      std::rotate(found.begin(), fastest, fastest + 1);
#include "core/order_problems.hpp"
    }
#include "core/order_problems.hpp"
    return found;
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
  void keep(std::optional<Cure> cure) {
#include "core/order_problems.hpp"
    if (cure) report_.cures.push_back(std::move(*cure));
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
  /// The candidate if it ends; else why not is noted.
#include "core/order_problems.hpp"
  std::optional<Cure> prove(Candidate candidate) {
#include "core/order_problems.hpp"
    if (!candidate.refusal.empty()) {
#include "core/order_problems.hpp"
      report_.failed.push_back({candidate.cure.name, candidate.refusal});
#include "core/order_problems.hpp"
      return std::nullopt;
#include "core/order_problems.hpp"
    }
#include "core/order_problems.hpp"
    const Program program = lower(candidate.cure.order, candidate.cure.policy, options_);
#include "core/order_problems.hpp"
    const sim::Result result = sim::simulate(program, costs_);
#include "core/order_problems.hpp"
    if (!result.finished) {
#include "core/order_problems.hpp"
      const WaitReport stuck =
#include "core/order_problems.hpp"
          explain_stuck(program, result.progress, costs_.message_bytes(program));
#include "core/order_problems.hpp"
      report_.failed.push_back({candidate.cure.name, "still " + stuck_text(program, stuck)});
#include "core/order_problems.hpp"
      return std::nullopt;
#include "core/order_problems.hpp"
    }
#include "core/order_problems.hpp"
    candidate.cure.step_ns_before = baseline_;
#include "core/order_problems.hpp"
    candidate.cure.step_ns_after = result.timeline.makespan_ns;
#include "core/order_problems.hpp"
    return std::move(candidate.cure);
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
  std::optional<std::int64_t> baseline_of(const Order& listed) const {
#include "core/order_problems.hpp"
    const CommPolicy grouped{
#include "core/order_problems.hpp"
        .issue = Issue::Grouped, .send_f = policy_.send_f, .send_b = policy_.send_b};
#include "core/order_problems.hpp"
    const Program program =
#include "core/order_problems.hpp"
        lower(options_.fragment ? listed : computations_of(listed), grouped, options_);
#include "core/order_problems.hpp"
    const sim::Result result = sim::simulate(program, costs_);
#include "core/order_problems.hpp"
    if (!result.finished) return std::nullopt;
#include "core/order_problems.hpp"
    return result.timeline.makespan_ns;
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
  const Order& order_;
#include "core/order_problems.hpp"
  const CommPolicy& policy_;
#include "core/order_problems.hpp"
  const CostTable& costs_;
#include "core/order_problems.hpp"
  const LowerOptions& options_;
#include "core/order_problems.hpp"
  CureReport& report_;
#include "core/order_problems.hpp"
  std::optional<std::int64_t> baseline_;
#include "core/order_problems.hpp"
};
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
/// Why nothing helped.
#include "core/order_problems.hpp"
std::string hopeless_text(const Order& order, const CommPolicy& policy, const CostTable& costs,
#include "core/order_problems.hpp"
                          const LowerOptions& options) {
#include "core/order_problems.hpp"
  const Program program = lower(listed_order(order, policy), comm_policy_preset("ideal"), options);
#include "core/order_problems.hpp"
  const WaitReport report = sim::check(program, costs);
#include "core/order_problems.hpp"
  if (report.verdict == Verdict::Ok)
#include "core/order_problems.hpp"
    return "none of the cures ends; make the order anew from a schedule";
#include "core/order_problems.hpp"
  if (report.cycle.empty())
#include "core/order_problems.hpp"
    return "it waits for something that lies outside; no change of the order here can bring it";
#include "core/order_problems.hpp"
  return "the computations alone wait for each other, under every policy (" +
#include "core/order_problems.hpp"
         without_newline(describe(program, report)) + "); only another order of them helps";
#include "core/order_problems.hpp"
}
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
}  // namespace
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
std::string_view to_string(Touches touches) {
#include "core/order_problems.hpp"
  switch (touches) {
#include "core/order_problems.hpp"
    case Touches::Policy:
#include "core/order_problems.hpp"
      return "policy";
#include "core/order_problems.hpp"
    case Touches::Transfers:
#include "core/order_problems.hpp"
      return "transfers";
#include "core/order_problems.hpp"
    case Touches::Computations:
#include "core/order_problems.hpp"
      return "computations";
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"
  return "policy";
#include "core/order_problems.hpp"
}
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
double Cure::cost_percent() const {
#include "core/order_problems.hpp"
  if (!step_ns_before || *step_ns_before == 0) return 0;
#include "core/order_problems.hpp"
  return 100.0 * static_cast<double>(step_ns_after - *step_ns_before) /
#include "core/order_problems.hpp"
         static_cast<double>(*step_ns_before);
#include "core/order_problems.hpp"
}
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
CureReport cure(const Order& order, const CommPolicy& policy, const CostTable& costs,
#include "core/order_problems.hpp"
                const LowerOptions& options) {
#include "core/order_problems.hpp"
  CureReport report;
#include "core/order_problems.hpp"
  if (!options.fragment) {
#include "core/order_problems.hpp"
    const auto problems = problems_of(order);
#include "core/order_problems.hpp"
    if (!problems.empty()) {
#include "core/order_problems.hpp"
      report.verdict = Verdict::Invalid;
#include "core/order_problems.hpp"
      report.sentence = "the order is not whole (" + problems.front() +
#include "core/order_problems.hpp"
                        "); no change of its communication can mend that";
#include "core/order_problems.hpp"
      return report;
#include "core/order_problems.hpp"
    }
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"
  report.verdict = sim::check(lower(order, policy, options), costs).verdict;
#include "core/order_problems.hpp"
  if (report.verdict == Verdict::Ok) {
#include "core/order_problems.hpp"
    report.sentence = "it ends as it is: there is nothing to cure";
#include "core/order_problems.hpp"
    return report;
#include "core/order_problems.hpp"
  }
#include "core/order_problems.hpp"
  Proving(order, policy, costs, options, report).try_all();
#include "core/order_problems.hpp"
  report.sentence = report.cures.empty() ? hopeless_text(order, policy, costs, options)
#include "core/order_problems.hpp"
                                         : report.cures.front().change.sentence;
#include "core/order_problems.hpp"
  return report;
#include "core/order_problems.hpp"
}
#include "core/order_problems.hpp"

#include "core/order_problems.hpp"
}  // namespace pipewright::planner
#include "core/order_problems.hpp"
