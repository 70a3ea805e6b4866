#include "tests/golden/bytedance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "core/base/json.hpp"
#include "core/costs/action_times.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::golden {
namespace {

Nanoseconds nanoseconds(const Json& milliseconds) {
  return Nanoseconds(std::llround(milliseconds.get<double>() * 1e6));
}

/// Of one step: the passes of all replicas, and the slowest one's first start to last end.
struct MeasuredStep {
  std::vector<ActionTime> passes;
  int replicas = 0;
  double slowest_ms = 0;
};

MeasuredStep read_step(const Json& row) {
  MeasuredStep step;
  for (const Json& replica : row["replicas"]) {
    double first = replica["start_ms"][0].get<double>(), last = 0;
    for (const Json& start : replica["start_ms"]) first = std::min(first, start.get<double>());
    for (const Json& end : replica["end_ms"]) last = std::max(last, end.get<double>());
    step.slowest_ms = std::max(step.slowest_ms, last - first);
    for (const auto& [key, kind] :
         {std::pair("F_ms", ActionKind::F), std::pair("B_ms", ActionKind::B)}) {
      int rank = 0;
      for (const Json& of_rank : replica[key]) {
        int micro_batch = 0;
        for (const Json& pass : of_rank) {
          step.passes.push_back({step.replicas,
                                 RankId(rank),
                                 {{kind, StageId(rank), MicroBatchId(micro_batch++)}, {}},
                                 nanoseconds(pass)});
        }
        ++rank;
      }
    }
    ++step.replicas;
  }
  return step;
}

}  // namespace

std::vector<ReplayedStep> bytedance_steps(const std::string& job) {
  const std::string path = PIPEWRIGHT_GOLDEN_DIR "/measured2/bytedance_straggler_" + job + ".json";
  if (!std::filesystem::exists(path)) return {};
  const Json file = parse_json(read_text(path), path);
  const int ranks = file["job"]["pp"], micro_batches = file["job"]["micro_batches"];
  const Order pipeline =
      planner::make_order("1f1b", {.ranks = ranks, .micro_batches = micro_batches});
  std::vector<ReplayedStep> steps;
  for (const Json& row : file["rows"]) {
    MeasuredStep step = read_step(row);
    const ReplicaShape shape{step.replicas, ranks, micro_batches};
    EXPECT_FALSE(fault_of(step.passes, pipeline, shape));
    CostTable costs = CostTable::uniform(
        ranks, {}, nanoseconds(file["gap_after_a_remote_dependency_ms"]["median"]));
    costs.actions = std::make_shared<ActionTimes>(std::move(step.passes), shape);
    steps.push_back(
        {lower(planner::replicate(pipeline, step.replicas), comm_policy_preset("ideal")),
         std::move(costs), step.slowest_ms});
  }
  return steps;
}

}  // namespace pipewright::golden
