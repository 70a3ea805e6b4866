// A traced step as a simulation of its order with the costs that it shows: what analyze writes down
// for simulate, and what changes of these costs are tried on.
#pragma once

#include "core/timeline/timeline.hpp"
#include "tools/input/step.hpp"
#include "traces/analysis/action_costs.hpp"

namespace pipewright::tools {

/// Under the papers' model: a transfer is a latency and nothing else.
struct TracedReplay {
  traces::ActionCosts costs;
  Program program;
  CostTable table;
  Timeline timeline;
};

/// Of a step of a trace; `order` as order_of_trace() gives it.
TracedReplay replay_of(const Step& step, const Order& order);
/// How far the replay is from the trace: 0.01 is one per cent.
double replay_error(const TracedReplay& replay, const Step& step);

}  // namespace pipewright::tools
