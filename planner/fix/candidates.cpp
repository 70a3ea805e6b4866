#include "planner/fix/candidates.hpp"

#include <algorithm>

#include "planner/fix/call_order.hpp"
#include "planner/fix/difference.hpp"
#include "planner/fix/hoisting.hpp"
#include "planner/fix/listed_order.hpp"
#include "planner/fix/warm_up.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostWarmUps = 16;

FixCandidate named(std::string name, std::string sentence, Touches touches) {
  FixCandidate candidate;
  candidate.fix.name = std::move(name);
  candidate.fix.change = {std::move(sentence), touches};
  return candidate;
}

/// A candidate that changes fields of the policy; refused where it changes none.
FixCandidate with_policy(FixCandidate candidate, const Order& order, const CommPolicy& from,
                         const CommPolicy& to) {
  Fix& fix = candidate.fix;
  fix.policy = to;
  fix.difference = policy_difference(from, to);
  if (fix.difference.empty()) {
    candidate.refusal = "it is so already";
    return candidate;
  }
  fix.order = listed_order(order, to);
  return candidate;
}

void add_lines(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

struct Moving {
  const CostTable& costs;
  const LowerOptions& options;
  HoistMoves wanted;
};

/// A candidate that moves ends under the policy `to`; its sentence begins as it is named.
FixCandidate with_moves(FixCandidate candidate, const Order& listed, const CommPolicy& from,
                        const CommPolicy& to, const Moving& how) {
  Fix& fix = candidate.fix;
  fix.policy = to;
  auto found = hoisted(listed, to, how.costs, how.options, how.wanted);
  if (!found || found->moves.empty()) {
    candidate.refusal = found ? "the lists end as they are written; only their policy holds them up"
                              : "a cycle of waits holds no transfer end that may move";
    return candidate;
  }
  const bool one = found->moves.size() == 1;
  fix.change.sentence +=
      "move " + count_of_moves(found->moves) + " earlier, " + (one ? "" : "each ") +
      "to before the instruction that held " + (one ? "it" : "them") + " back" +
      (how.wanted == HoistMoves::Fewest ? "" : ", on every second rank of each cycle");
  fix.difference = move_difference(found->moves);
  add_lines(fix.difference, policy_difference(from, to));
  fix.order = std::move(found->order);
  return candidate;
}

std::string ranks_text(const std::vector<int>& steps) {
  std::string text;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    if (steps[r] == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(r);
    if (steps[r] > 1) text += " (" + std::to_string(steps[r]) + " times)";
  }
  return text;
}

/// Warms up the ranks where a forward that the cycle waits for stands behind a backward; false if
/// none can.
bool warm_up_cycle(Order& computations, const Program& program, const WaitReport& report,
                   std::vector<int>& steps) {
  bool any = false;
  for (const WaitStep& step : report.cycle) {
    const ActionKind wanted = program.code[step.waits_for].kind;
    const ActionKind first = program.code[step.behind].kind;
    const bool held_back = (wanted == ActionKind::F || wanted == ActionKind::SendF) &&
                           (first == ActionKind::I || first == ActionKind::B);
    const RankId rank = program.rank_of(step.behind);
    if (!held_back || !can_warm_up(computations, rank)) continue;
    warm_up_once_more(computations, rank);
    ++steps[static_cast<std::size_t>(rank.value)];
    any = true;
  }
  return any;
}

}  // namespace

FixCandidate grouped_transfers(const Order& order, const CommPolicy& policy) {
  CommPolicy to = policy;
  to.issue = Issue::Grouped;
  to.channel = Channel::Edge;
  return with_policy(named("group",
                           "group the opposite transfers: start the sends and receives between two "
                           "computations together, as one NCCL group (issue = grouped)",
                           Touches::Policy),
                     order, policy, to);
}

FixCandidate moved_ends(const Order& listed, const CommPolicy& policy, const CostTable& costs,
                        const LowerOptions& options, HoistMoves wanted) {
  return with_moves(named("hoist", "", Touches::Transfers), listed, policy, as_written(policy),
                    {costs, options, wanted});
}

FixCandidate grouped_and_moved(const Order& listed, const CommPolicy& policy,
                               const CostTable& costs, const LowerOptions& options,
                               HoistMoves wanted) {
  FixCandidate candidate =
      named("group-hoist", "group the transfers (issue = grouped), and ", Touches::Transfers);
  if (policy.issue != Issue::Inline) {
    candidate.refusal = "the transfers do not stand on the lane that computes";
    return candidate;
  }
  CommPolicy to = as_written(policy);
  to.issue = Issue::Grouped;
  return with_moves(std::move(candidate), listed, policy, to, {costs, options, wanted});
}

FixCandidate early_receives(const Order& order, const CommPolicy& policy) {
  CommPolicy to = policy;
  to.post = Post::Early;
  return with_policy(named("post-early",
                           std::string("post each receive where ") +
                               (order.has_transfers() ? "the list has it" : "lowering puts it") +
                               " (post = early)",
                           Touches::Policy),
                     order, policy, to);
}

FixCandidate even_odd_runs(const Order& order, const CommPolicy& policy) {
  CommPolicy to = policy;
  to.run_order = RunOrder::EvenOdd;
  return with_policy(
      named("even-odd",
            "order neighbouring transfers by the parity of the rank: even ranks send "
            "first, odd ranks receive first (run_order = even-odd)",
            Touches::Policy),
      order, policy, to);
}

FixCandidate split_channel(const Order& order, const CommPolicy& policy) {
  CommPolicy to = policy;
  to.issue = Issue::Stream;
  if (policy.channel != Channel::Tag || policy.issue != Issue::Stream) to.channel = Channel::Edge;
  return with_policy(named("split-channel",
                           policy.issue == Issue::Stream
                               ? "give each direction of a pair of ranks a queue of its own "
                                 "(channel = edge)"
                               : "take the transfers off the lane that computes, with a queue for "
                                 "each direction of a pair of ranks (issue = stream, channel = "
                                 "edge)",
                           Touches::Policy),
                     order, policy, to);
}

FixCandidate split_channel_early(const Order& order, const CommPolicy& policy) {
  CommPolicy to = split_channel(order, policy).fix.policy;
  to.post = Post::Early;
  return with_policy(named("split-channel-early",
                           "give the transfers lanes of their own, one for each direction of a "
                           "pair of ranks, and post each receive where the order puts it (issue = "
                           "stream, channel = edge, post = early)",
                           Touches::Policy),
                     order, policy, to);
}

FixCandidate ready_connections(const Order& order, const CommPolicy& policy) {
  CommPolicy to = policy;
  to.connect = Connect::Ready;
  return with_policy(named("warm-up-exchange",
                           "make every connection before the step, by one grouped exchange on each "
                           "edge (connect = ready)",
                           Touches::Policy),
                     order, policy, to);
}

FixCandidate more_in_flight(const Order& order, const CommPolicy& policy, const CostTable& costs,
                            const LowerOptions& options) {
  CommPolicy to = policy;
  const auto ends = [&](int in_flight) {
    to.in_flight = in_flight;
    return sim::simulate(lower(order, to, options), costs).finished;
  };
  // More places never hold anything back, so the least number can be halved in on.
  int least = 0;
  if (ends(0)) {
    int too_few = policy.in_flight;
    least = 2 * too_few;
    while (!ends(least)) {
      too_few = least;
      least *= 2;
    }
    while (least - too_few > 1) {
      const int middle = too_few + (least - too_few) / 2;
      (ends(middle) ? least : too_few) = middle;
    }
  }
  to.in_flight = least;
  const std::string sentence =
      least == 0 ? "allow any number of transfers in flight (in_flight = 0)"
                 : "allow " + std::to_string(least) +
                       " transfers in flight (in_flight = " + std::to_string(least) + ")";
  return with_policy(named("more-in-flight", sentence, Touches::Policy), order, policy, to);
}

FixCandidate unlimited_issue(const Order& order, const CommPolicy& policy) {
  CommPolicy to = policy;
  to.connect = Connect::Ready;
  to.in_flight = 0;
  return with_policy(named("lift-limits",
                           "make every connection before the step and allow any number of "
                           "transfers in flight (connect = ready, in_flight = 0)",
                           Touches::Policy),
                     order, policy, to);
}

FixCandidate listed_anew(const Order& listed, const CommPolicy& policy) {
  FixCandidate candidate =
      named("list-anew",
            "give up the written places of the transfers: post each receive at "
            "the moment of its send, as lowering does",
            Touches::Transfers);
  Fix& fix = candidate.fix;
  fix.policy = as_written(policy);
  fix.order = with_transfers(computations_of(listed));
  put_waits_last(fix.order, listed);
  fix.difference = list_difference(listed, fix.order);
  add_lines(fix.difference, policy_difference(policy, fix.policy));
  return candidate;
}

FixCandidate one_call_order(const Order& order, const CommPolicy& policy) {
  FixCandidate candidate = named("one-call-order",
                                 "take the calls in one order on all ranks, that of the first rank "
                                 "which has them",
                                 Touches::Transfers);
  CallOrder found = calls_in_one_order(order);
  candidate.refusal = std::move(found.refusal);
  if (!candidate.refusal.empty()) return candidate;
  candidate.fix.policy = policy;
  candidate.fix.difference = list_difference(order, found.order);
  candidate.fix.order = std::move(found.order);
  return candidate;
}

FixCandidate batches_apart(const Order& order, const CommPolicy& policy) {
  CommPolicy to = policy;
  to.batches = Batches::Apart;
  return with_policy(
      named("batches-apart", "start the transfers of each batch by themselves (batches = apart)",
            Touches::Policy),
      order, policy, to);
}

FixCandidate warmed_up(const Order& listed, const CommPolicy& policy, const CostTable& costs,
                       const LowerOptions& options) {
  FixCandidate candidate = named("warm-up", "", Touches::Computations);
  Fix& fix = candidate.fix;
  const CommPolicy& ideal = comm_policy_preset("ideal");
  Order computations = computations_of(listed);
  std::vector<int> steps(computations.ranks.size(), 0);
  for (int k = 0;; ++k) {
    const Program program = lower(computations, ideal, options);
    const WaitReport report = sim::check(program, costs);
    if (report.verdict == Verdict::Ok) break;
    if (k == kMostWarmUps || !warm_up_cycle(computations, program, report, steps)) {
      candidate.refusal = "no forward that could come earlier ends the waits of the computations";
      return candidate;
    }
  }
  const std::string ranks = ranks_text(steps);
  if (ranks.empty()) {
    candidate.refusal = "the computations do not wait for each other";
    return candidate;
  }
  fix.change.sentence =
      "another order of the computations: one more forward before the first backward on rank " +
      ranks + ", with one more live activation each time, and the transfers listed anew";
  fix.policy = as_written(policy);
  fix.order = with_transfers(computations);
  put_waits_last(fix.order, listed);
  for (std::size_t r = 0; r < steps.size(); ++r) {
    if (steps[r] > 0) {
      fix.difference.push_back("rank " + std::to_string(r) + ": " + std::to_string(steps[r]) +
                               " more forward before its first backward");
    }
  }
  add_lines(fix.difference, policy_difference(policy, fix.policy));
  return candidate;
}

}  // namespace pipewright::planner
