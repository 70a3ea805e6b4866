// The verdict on an order; where nobody names a policy, as stock PyTorch runs it over NCCL, by
// release and set-up. Pure functions; any number of threads may call them.
#pragma once

#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "core/program/wait_for.hpp"
#include "sim/engine.hpp"

namespace pipewright::sim {

/// The verdict on an order under one policy, which has a name where it is a preset's.
struct Judgement {
  std::string policy;
  WaitReport report;
};

/// Invalid where the order has problems (core/order/problems.hpp), else check().
WaitReport judge(const std::vector<std::string>& problems, const Program& program,
                 const CostTable& costs, const Pulse& pulse = {});

/// The policy under which an order is judged. Of one that holds calls or parts it says what a
/// library guarantees and no more (docs/semantics.md §3.3): one queue of the device; and where it
/// holds calls alone, or makes groups, connections that are made at their first use.
CommPolicy judged_policy(const Order& order, CommPolicy policy, bool fragment);

struct NamedPolicy {
  std::string name;
  CommPolicy policy;
};

/// One judgement for each way in which an order may be run.
struct Judgements {
  std::vector<Judgement> all;
  /// Under the worst of them (invalid, mismatch, deadlock, ok), of several under the first.
  Program program;

  const Judgement& worst() const;
};
/// Under each of the policies, of which there is one at least.
Judgements judge_under(const std::vector<NamedPolicy>& policies, const Order& order,
                       const LowerOptions& options, const std::vector<std::string>& problems,
                       const CostTable& costs, const Pulse& pulse = {});
/// As stock PyTorch may run it.
Judgements judge_as_torch(const Order& order, const LowerOptions& options,
                          const std::vector<std::string>& problems, const CostTable& costs,
                          const Pulse& pulse = {});

}  // namespace pipewright::sim
