#include "tools/input/traced_replay.hpp"

#include <cmath>
#include <memory>

#include "core/costs/action_times.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright::tools {

TracedReplay replay_of(const Step& step, const Order& order) {
  TracedReplay replay{.costs = traces::action_costs(step.program, step.timeline)};
  replay.table = CostTable::uniform(order.stages(), {}, replay.costs.latency);
  replay.table.actions = std::make_shared<ActionTimes>(
      replay.costs.times, ReplicaShape{1, order.rank_count(), order.micro_batches});
  replay.program = lower(order, comm_policy_preset("ideal"),
                         {.optimizer = replay.table.actions->names_updates()});
  replay.timeline = sim::simulate(replay.program, replay.table).timeline;
  return replay;
}

double replay_error(const TracedReplay& replay, const Step& step) {
  const auto whole = static_cast<double>(step.figures.makespan_ns);
  return whole > 0 ? std::abs(static_cast<double>(replay.timeline.makespan_ns) - whole) / whole : 0;
}

}  // namespace pipewright::tools
