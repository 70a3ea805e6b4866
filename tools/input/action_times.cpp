#include "tools/input/action_times.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/most_devices.hpp"
#include "planner/synthesis/auto_schedule.hpp"

namespace pipewright::tools {
namespace {

std::shared_ptr<const ActionTimes> read(const std::string& file, const Order& pipeline,
                                        const ReplicaShape& shape) {
  auto rows = read_action_times_csv(read_text(file), file);
  if (const auto fault = fault_of(rows, pipeline, shape))
    throw InputError(file, "line " + std::to_string(rows[fault->row].line), fault->why);
  return std::make_shared<ActionTimes>(std::move(rows), shape);
}

/// All that an order of these stages may compute, in no order.
Order all_computations(const planner::SynthesisRequest& request) {
  const Placement& placement = request.placement;
  const int micro_batches = request.micro_batches;
  std::vector<ActionKind> kinds = {ActionKind::F, ActionKind::B};
  if (request.split_backward) kinds.insert(kinds.end(), {ActionKind::I, ActionKind::W});
  Order order;
  order.placement = placement;
  order.micro_batches = micro_batches;
  order.ranks.resize(static_cast<std::size_t>(placement.ranks()));
  for (int s = 0; s < placement.stages(); ++s) {
    const RankId rank = placement.rank_of(StageId(s), MicroBatchId(0));
    for (int k = 0; k < micro_batches; ++k) {
      for (const ActionKind kind : kinds) {
        order.ranks[static_cast<std::size_t>(rank.value)].push_back(
            {.action = {.kind = kind, .stage = StageId(s), .micro_batch = MicroBatchId(k)},
             .partner = std::nullopt});
      }
    }
  }
  return order;
}

}  // namespace

void use_action_times(CostTable& costs, const Order& pipeline, const ReplicaShape& shape,
                      const Arguments& arguments) {
  const auto file = arguments.text("--costs");
  if (file) costs.actions = read(*file, pipeline, shape);
}

void add_action_times(planner::ScheduleRequest& request, const planner::Schedule& schedule,
                      const Arguments& arguments) {
  const auto file = arguments.text("--costs");
  if (!file || !schedule.traits.searched) return;
  if (planner::chooses_placement(request)) {
    throw InputError(
        "--costs names actions by their stages, and this search chooses the stages; say where "
        "they are: --vpp 1, or --placement loop or v");
  }
  if (arguments.has("--prove"))
    throw InputError("--prove tries micro-batches that are all alike; leave it or --costs out");
  const ReplicaShape shape{arguments.integer_or("--dp", 1, kMostDevices, 1), request.ranks,
                           request.micro_batches};
  request.costs.actions = read(*file, all_computations(planner::synthesis_request(request)), shape);
}

void keep_action_times(CostTable& costs, const planner::ScheduleRequest& request,
                       const Order& found) {
  if (request.costs.actions == nullptr) return;
  const ActionTimes& given = *request.costs.actions;
  costs.actions = std::make_shared<ActionTimes>(rows_of(given.rows(), found), given.shape());
}

}  // namespace pipewright::tools
