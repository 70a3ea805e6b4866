// Simulated timelines for the tests of traces/.
#pragma once

#include <string>
#include <string_view>

#include "core/costs/cost_text.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::test {

struct Traced {
  Program program;
  CostTable costs;
  Timeline timeline;
  bool finished = false;

  InstructionId id(std::string_view text) const {
    for (InstructionId i = 0; i < program.code.size(); ++i) {
      if (program.text(i) == text) return i;
    }
    return kNoInstruction;
  }
};

inline Traced traced(const Order& order, const CommPolicy& policy, const CostTable& costs,
                     bool fragment = false) {
  Traced t{lower(order, policy, {.fragment = fragment}), costs, {}, false};
  sim::Result result = sim::simulate(t.program, t.costs);
  t.timeline = std::move(result.timeline);
  t.finished = result.finished;
  return t;
}

inline Traced traced_csv(std::string_view csv, const CommPolicy& policy, std::string_view costs,
                         bool fragment = false) {
  const Order order = read_order_csv(csv, "order.csv");
  return traced(order, policy, parse_costs(costs, order.stages()), fragment);
}

inline Traced traced_schedule(std::string_view name, int ranks, int micro_batches, int chunks,
                              std::string_view preset, std::string_view costs) {
  const Order order = planner::make_order(
      name, {.ranks = ranks, .micro_batches = micro_batches, .chunks = chunks, .parameters = {}});
  return traced(order, comm_policy_preset(preset), parse_costs(costs, order.stages()));
}

}  // namespace pipewright::test
