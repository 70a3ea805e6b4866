// What it costs to make an order, beside what it costs to simulate it (lowering and engine), in the
// same run, for every schedule of the registry. Prints one row a case; medians of several runs.
//   generating_speed [largest number of ranks, default 32]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/bench/median.hpp"

namespace pipewright {
namespace {

/// Costs that differ, so that a cost-driven schedule has something to decide.
CostTable costs_for(int stages) {
  return CostTable::uniform(stages,
                            {.f = Nanoseconds(1000),
                             .i = Nanoseconds(1100),
                             .w = Nanoseconds(800),
                             .b = Nanoseconds(1900),
                             .opt = {}},
                            Nanoseconds(20));
}

void measure(const planner::Schedule& schedule, int p, int m) {
  planner::ScheduleRequest request{p, m, schedule.default_chunks, {}};
  if (planner::refusal_of(schedule, request)) return;
  const int stages = planner::placement_of(schedule, request).stages();
  request.costs = costs_for(stages);
  Order order;
  const double making =
      median_seconds(5, [&] { order = planner::make_order(schedule.name, request); });
  Program program;
  const double lowering =
      median_seconds(5, [&] { program = lower(order, comm_policy_preset("ideal")); });
  const double engine = median_seconds(5, [&] { sim::simulate(program, request.costs); });
  double actions = 0;
  for (const auto& cells : order.ranks) actions += static_cast<double>(cells.size());
  std::printf("%-20s %3d %4d %2d %8.0f %10.1f %10.1f %10.1f %8.2f\n",
              std::string(schedule.name).c_str(), p, m, request.chunks, actions, making * 1e6,
              lowering * 1e6, engine * 1e6, making / (lowering + engine));
  std::fflush(stdout);
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  using namespace pipewright;
  const int most = argc > 1 ? std::atoi(argv[1]) : 32;
  std::printf(
      "us; ratio = making / (lowering + engine)\n%-20s %3s %4s %2s %8s %10s %10s %10s %8s\n",
      "schedule", "p", "m", "v", "cells", "making", "lowering", "engine", "ratio");
  for (const int p : {4, 8, 32}) {
    if (p > most) break;
    for (const planner::Schedule& schedule : planner::schedules()) measure(schedule, p, 4 * p);
  }
  return 0;
}
