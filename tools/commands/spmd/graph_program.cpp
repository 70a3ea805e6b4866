#include "tools/commands/spmd/graph_program.hpp"

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "core/program/verdict.hpp"
#include "planner/schedules/requested.hpp"
#include "planner/tensor_placement/stage_work.hpp"
#include "sim/engine.hpp"
#include "tools/cli/figures.hpp"

namespace pipewright::tools {
namespace {

void require_trainable(const planner::Schedule& schedule) {
  const std::string name = "schedule " + std::string(schedule.name);
  if (schedule.traits.asynchronous) {
    throw InputError(name +
                     " updates weights within a step; a graph is updated at its end: take "
                     "1f1b, interleaved or zb-h1");
  }
  if (planner::holders_in(schedule.layout) > 1 || schedule.layout == planner::Layout::Replicas) {
    throw InputError(name +
                     " has a stage on several ranks; of a graph each is on one mesh: take "
                     "1f1b, interleaved or zbv");
  }
}

void require_placed_alike(const Order& order, const spmd::PipelineStages& stages,
                          const std::string& name) {
  for (std::size_t stage = 0; stage < stages.count(); ++stage) {
    const int rank =
        order.placement.rank_of(StageId(static_cast<int>(stage)), MicroBatchId(0)).value;
    if (rank == static_cast<int>(stages.rank_of(stage))) continue;
    throw InputError("schedule " + name + " has stage " + std::to_string(stage) + " on rank " +
                     std::to_string(rank) + ", the graph on mesh " +
                     std::to_string(stages.rank_of(stage)) + " of its meshes");
  }
}

bool has_pairs(const Order& order) {
  return std::ranges::any_of(order.ranks, [](const std::vector<Cell>& row) {
    return std::ranges::any_of(row, [](const Cell& cell) { return cell.partner.has_value(); });
  });
}

/// Those of actions that the order has.
std::vector<ActionParts> parts_in(const Order& order, std::vector<ActionParts> parts) {
  std::set<std::pair<int, ActionKind>> there;
  for (const auto& row : order.ranks) {
    for (const Cell& cell : row) there.emplace(cell.action.stage.value, cell.action.kind);
  }
  std::erase_if(parts, [&](const ActionParts& one) {
    return !there.contains({one.stage.value, one.kind});
  });
  return parts;
}

}  // namespace

GraphProgram graph_program(const spmd::OperatorGraph& completed, const spmd::PipelineStages& stages,
                           const spmd::TrainingSteps& steps, const Cluster& cluster) {
  const planner::Schedule& schedule = planner::find_schedule(completed.pipeline->schedule_mode);
  require_trainable(schedule);
  planner::ScheduleRequest request;
  request.ranks = static_cast<int>(stages.meshes.size());
  request.micro_batches = completed.pipeline->accumulate_steps;
  request.chunks = stages.chunks;
  GraphProgram result{.title = planner::title_of(schedule, request),
                      .order = planner::make_order(schedule.name, request),
                      .program = {},
                      .costs = {},
                      .expected = {},
                      .schedule = {}};
  require_placed_alike(result.order, stages, std::string(schedule.name));
  // The actions of a pair are done one after the other, where their parts would take turns.
  auto work = planner::tensor_placement::stage_work(completed, stages, steps, cluster,
                                                    !has_pairs(result.order));
  result.costs = std::move(work.costs);
  result.order.mesh = std::move(work.mesh);
  result.order.parts = parts_in(result.order, std::move(work.parts));
  result.program = lower(result.order, {}, {.optimizer = true});
  const WaitReport report = sim::check(result.program, result.costs);
  if (report.verdict != Verdict::Ok) {
    std::string text = result.title + " would not end: " + verdict_title(report);
    for (const std::string& reason : verdict_reasons(result.program, report, {})) {
      text += "; " + reason;
    }
    throw RunError(text);
  }
  result.expected = figures_of(result.program, sim::simulate(result.program, result.costs).timeline,
                               result.costs);
  result.schedule = exec::graphs::schedule_of(stages, result.program);
  return result;
}

std::string expected_text(const GraphProgram& one, const std::string& cluster) {
  return one.title + ": ends; on " + cluster + " a step would take " +
         time_text(one.expected.makespan_ns) + ", bubble " +
         percent_text(one.expected.bubble_ratio);
}

Json expected_json(const GraphProgram& one, const std::string& cluster) {
  return {{"title", one.title},
          {"micro_batches", one.schedule.micro_batches},
          {"cluster", cluster},
          {"makespan_ns", one.expected.makespan_ns},
          {"bubble_ratio", one.expected.bubble_ratio}};
}

}  // namespace pipewright::tools
