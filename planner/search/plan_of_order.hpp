// From an order that somebody wrote to a complete plan: stages cut for it, costs, a prediction.
// Pure functions.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/order/order.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"

namespace pipewright::planner {

/// What an order does not say.
struct OrderSetup {
  /// "tp=2,dp=4,micro_batch_size=2": the keys of explain() but pp, vpp, replicas, micro_batches and
  /// schedule, which the order says.
  std::string configuration;
  /// The number of layers of each stage; empty: as even by cost as they can be cut.
  std::vector<int> layers;
};

/// An order that does not end under the job's policy.
struct StuckOrder {
  Program program;
  WaitReport report;
};

struct PlanOfOrder {
  Plan plan;
  /// Ranks that hold more than they may, a sentence each.
  std::vector<std::string> over_memory;
};

/// The samples of a step: what the order's micro-batches make with the setup's replicas.
int global_batch_of(const Order& order, const Job& job, const OrderSetup& setup);

/// `order` has no problems (core/order/problems.hpp) and is of one replica; job.global_batch is
/// global_batch_of(). `cores` as in SearchOptions. Throws InputError for an order that a plan
/// cannot hold (calls, parts, a part of a log, stages on several ranks), and for a setup or layers
/// that do not fit the job or the order.
std::variant<PlanOfOrder, StuckOrder> plan_of_order(const Job& job, const Profile* profile,
                                                    int cores, const Order& order,
                                                    const OrderSetup& setup);

}  // namespace pipewright::planner
