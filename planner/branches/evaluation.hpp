// What the simulator says of a branch of the search: the step, the bubble, the memory. A pure
// function; any number of threads may call it.
#pragma once

#include <memory>
#include <optional>

#include "planner/branches/branch.hpp"
#include "planner/branches/known_peaks.hpp"
#include "planner/configurations/candidate.hpp"
#include "planner/configurations/rank_limits.hpp"

namespace pipewright::planner {

struct Evaluation {
  Candidate candidate;             // complete unless `pruned` says why not
  std::size_t schedule_index = 0;  // place in the registry, simpler schedules first
  bool simulated = false;
  std::vector<Bytes> rank_peaks;  // of every rank; empty where it comes from a journal
  std::optional<LeftOut> pruned;  // nullopt: it is a plan
};

/// What the orders of a configuration are judged by.
struct OrderCosts {
  CostTable table;  // of as many replicas as are simulated
  RankLimits limits;
};

/// A branch, ready to be simulated: the recompute of its stages is chosen.
struct ChosenBranch {
  std::optional<LeftOut> left_out;  // nullopt: the rest is there
  Configuration configuration;
  std::shared_ptr<const std::vector<StagePlan>> stages;
  OrderCosts by;
  std::optional<Order> order;  // of one replica; empty: not made yet
};
/// What a branch has to beat, and why it is left out where no order of it does.
struct ToBeat {
  std::int64_t step = INT64_MAX;
  LeftOut why = LeftOut::TooSlowForTable;
};
/// Where recompute is chosen, the branch's bound was that of less.
ChosenBranch choose(const ConfigurationCosts& costs, const Branch& branch, Bytes limit,
                    KnownPeaks& known, const ToBeat& beat = {});

Evaluation evaluate(const Job& job, const ConfigurationCosts& costs, ChosenBranch chosen);
/// The same of a branch, and of a single one.
Evaluation evaluate(const Job& job, const ConfigurationCosts& costs, const Branch& branch,
                    Bytes limit, KnownPeaks& known);
Evaluation evaluate(const Job& job, const ConfigurationCosts& costs, const Branch& branch,
                    Bytes limit);

/// `configuration` with its recompute chosen.
OrderCosts order_costs(const ConfigurationCosts& costs, const Configuration& configuration,
                       const std::vector<StagePlan>& stages, Bytes limit);

/// As evaluate(), for another order of these stages than the schedule's; the order is of one
/// replica.
Evaluation evaluate_order(const Job& job, const ConfigurationCosts& costs,
                          const Configuration& configuration, const std::vector<StagePlan>& stages,
                          const Order& pipeline, const OrderCosts& by);

/// The row of a configuration with what follows from the configuration alone; nothing is predicted.
Candidate unpriced(const Configuration& configuration);

/// The order of the ranked table: by step, memory and devices, then the simpler one. Total.
bool better(const Evaluation& a, const Evaluation& b);

}  // namespace pipewright::planner
