#include "core/plan/plan_order.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/order/cells.hpp"
#include "core/order/problems.hpp"

namespace pipewright {
namespace {

/// Shows a bad action itself and not the whole array around it.
std::vector<Cell> read_cells(const JsonCursor& value, const Plan& plan) {
  if (value.string().empty()) return {{.action = {.kind = ActionKind::Idle}}};  // left empty
  CallTable calls;
  const std::vector<Cell> cells = parse_cells(value.string(), calls);
  if (!calls.take().empty()) value.fail("an action of the plan; calls stand in orders only");
  if (cells.empty()) {
    value.fail("an action such as \"0F1\", \"2B0\" or \"(0F7;7B3)OVERLAP_F_B\"");
  }
  const auto check = [&](const Action& action) {
    if (has_stage(action.kind) && action.stage.value >= static_cast<int>(plan.stages.size())) {
      value.fail("a stage of the plan, 0 to " + std::to_string(plan.stages.size() - 1));
    }
    if (has_micro_batch(action.kind) && action.micro_batch.value >= plan.micro_batches) {
      value.fail("a micro-batch of the plan, 0 to " + std::to_string(plan.micro_batches - 1));
    }
  };
  for (const Cell& cell : cells) {
    check(cell.action);
    if (cell.partner) check(*cell.partner);
  }
  return cells;
}

/// The stages' ranks; where the rows show replicas, where they compute.
Placement placement_of(const Order& order, const Plan& plan) {
  const int stages = static_cast<int>(plan.stages.size());
  Placement shown = placement_of_rows(order, stages, order.micro_batches);
  if (shown.looks_at_micro_batch()) return shown;
  std::vector<RankId> rank_of_stage;
  for (const StagePlan& stage : plan.stages) rank_of_stage.push_back(stage.rank);
  return Placement::explicit_stages(std::move(rank_of_stage), plan.ranks());
}

/// Of a stage with replicas the plan names one; every rank has to hold a stage.
void require_homes(const JsonCursor& list, const Order& order, const Plan& plan) {
  std::vector<bool> used(static_cast<std::size_t>(plan.ranks()), false);
  const int columns = order.placement.looks_at_micro_batch() ? order.micro_batches : 1;
  for (int s = 0; s < order.stages(); ++s) {
    const RankId named = plan.stages[static_cast<std::size_t>(s)].rank;
    bool computed_there = false;
    for (int m = 0; m < columns; ++m) {
      const RankId rank = order.placement.rank_of(StageId(s), MicroBatchId(m));
      if (rank.value >= 0) used[static_cast<std::size_t>(rank.value)] = true;
      computed_there |= rank == named;
    }
    if (!computed_there) {
      throw InputError(list.file(), list.pointer(),
                       "stage " + std::to_string(s) + " is on rank " + std::to_string(named.value) +
                           ", which computes it for no micro-batch; name one of its replicas");
    }
  }
  const auto idle = std::find(used.begin(), used.end(), false);
  if (idle == used.end()) return;
  throw InputError(list.file(), list.pointer(),
                   "rank " + std::to_string(idle - used.begin()) +
                       " computes no stage; use a mesh with fewer ranks");
}

}  // namespace

Order read_plan_order(const JsonCursor& list, const Plan& plan) {
  Order order;
  order.micro_batches = plan.micro_batches;
  std::size_t actions = 0;
  for (const JsonCursor& rank : list.elements()) {
    std::vector<Cell>& cells = order.ranks.emplace_back();
    for (const JsonCursor& cell : rank.elements()) {
      for (Cell& written : read_cells(cell, plan)) {
        actions += written.partner ? 2 : 1;
        cells.push_back(std::move(written));
      }
    }
  }
  if (order.rank_count() != plan.ranks()) {
    list.fail("one list of actions for each of the " + std::to_string(plan.ranks()) + " ranks");
  }
  // Before anything is made that is as large as stages times micro-batches.
  const std::size_t least = 2 * plan.stages.size() * static_cast<std::size_t>(plan.micro_batches);
  if (actions < least) {
    throw InputError(
        list.file(), list.pointer(),
        "expected at least " + std::to_string(least) +
            " actions (a forward and a backward of each stage and micro-batch), found " +
            std::to_string(actions));
  }
  order.placement = placement_of(order, plan);
  require_homes(list, order, plan);
  const std::vector<std::string> problems = problems_of(order);
  if (!problems.empty()) {
    throw InputError(list.file(), list.pointer(), "the order is not whole: " + problems.front());
  }
  return order;
}

}  // namespace pipewright
