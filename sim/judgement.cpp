#include "sim/judgement.hpp"

#include <algorithm>

#include "core/order/call_faults.hpp"

namespace pipewright::sim {
namespace {

int badness(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return 0;
    case Verdict::Deadlock:
      return 1;
    case Verdict::Mismatch:
      return 2;
    case Verdict::Invalid:
      return 3;
  }
  return 3;
}

/// Whether both policies make the same Program of an order.
bool read_alike(const Order& order, CommPolicy one, const CommPolicy& other) {
  const auto is_batched = [](const Cell& cell) { return cell.batched; };
  const bool batches = std::ranges::any_of(
      order.ranks, [&](const auto& row) { return std::ranges::any_of(row, is_batched); });
  if (!batches) one.batches = other.batches;
  return one == other;
}

}  // namespace

WaitReport judge(const std::vector<std::string>& problems, const Program& program,
                 const CostTable& costs, const Pulse& pulse) {
  if (problems.empty()) return check(program, costs, pulse);
  WaitReport report;
  report.verdict = Verdict::Invalid;
  return report;
}

CommPolicy judged_policy(const Order& order, CommPolicy policy, bool fragment) {
  if (order.calls.empty() && order.parts.empty()) return policy;
  policy.device_queues = 1;
  // What a fragment shows comes after the first use, unless it makes groups.
  const bool first_use = (holds_calls_alone(order) && !fragment) ||
                         std::ranges::any_of(order.calls, [](const Call& call) {
                           return call.kind == ActionKind::NewGroup;
                         });
  if (first_use) policy.connect = Connect::FirstUse;
  return policy;
}

const Judgement& Judgements::worst() const {
  return *std::max_element(all.begin(), all.end(), [](const Judgement& a, const Judgement& b) {
    return badness(a.report.verdict) < badness(b.report.verdict);
  });
}

Judgements judge_under(const std::vector<NamedPolicy>& policies, const Order& order,
                       const LowerOptions& options, const std::vector<std::string>& problems,
                       const CostTable& costs, const Pulse& pulse) {
  Judgements judged;
  int worst_badness = -1;
  for (std::size_t k = 0; k < policies.size(); ++k) {
    const std::string& name = policies[k].name;
    const CommPolicy& policy = policies[k].policy;
    const auto known = std::find_if(
        policies.begin(), policies.begin() + static_cast<std::ptrdiff_t>(k),
        [&](const NamedPolicy& earlier) { return read_alike(order, policy, earlier.policy); });
    if (known != policies.begin() + static_cast<std::ptrdiff_t>(k)) {
      const auto& same = judged.all[static_cast<std::size_t>(known - policies.begin())];
      judged.all.push_back({name, WaitReport(same.report)});
      continue;
    }
    Program program = lower(order, policy, options);
    judged.all.push_back({name, judge(problems, program, costs, pulse)});
    const int bad = badness(judged.all.back().report.verdict);
    if (bad <= worst_badness) continue;
    worst_badness = bad;
    judged.program = std::move(program);
  }
  return judged;
}

Judgements judge_as_torch(const Order& order, const LowerOptions& options,
                          const std::vector<std::string>& problems, const CostTable& costs,
                          const Pulse& pulse) {
  std::vector<NamedPolicy> policies;
  for (const std::string_view name : stock_torch_presets()) {
    policies.push_back(
        {std::string(name), judged_policy(order, comm_policy_preset(name), options.fragment)});
  }
  return judge_under(policies, order, options, problems, costs, pulse);
}

}  // namespace pipewright::sim
