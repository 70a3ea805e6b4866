// A row of the tuner's table. Plain data.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "core/order/order.hpp"
#include "core/plan/plan.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// An order that synthesis found for a winner (planner/search/winners.hpp), or that the user gave
/// (planner/search/plan_of_order.hpp).
struct SynthesisedOrder {
  std::shared_ptr<const Order> order;  // of one replica; the copies of a row share it
  std::string from;                    // the schedule of the row whose stages these are; empty: the
                                       // user gave the order
  Nanoseconds from_step;               // of that row
};

/// One row of the table: a configuration and what was predicted of it.
struct Candidate {
  std::string schedule;
  ParallelSetup parallel;
  std::string partition;  // "balanced" (by cost), "even" (by number of layers), "given"
  std::vector<StagePlan> stages;
  Nanoseconds step;
  double bubble_ratio = 0;
  std::vector<int> peak_activations;  // by rank
  Bytes peak_bytes;                   // of the fullest rank
  int fullest_rank = 0;
  Bytes state_bytes;  // of peak_bytes: what is there from the first step to the last
  std::optional<SynthesisedOrder> synthesised;  // what makes it a row of schedule `auto`

  int devices() const { return parallel.devices(); }
};

/// The rank count, schedule and batching of a row in words: "1f1b on 4 ranks, 8 micro-batches of
/// 2".
std::string describe(const Candidate& candidate);

}  // namespace pipewright::planner
