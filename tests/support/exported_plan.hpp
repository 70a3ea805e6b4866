// A small plan, and what an export makes of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "planner/export/export.hpp"

namespace pipewright::test {

/// A small GPT with as many blocks in each stage as told; the ends beside the first and the last.
inline Plan plan_of(int ranks, const std::vector<int>& blocks, const std::string& schedule,
                    int replicas) {
  int all = 0;
  for (const int count : blocks) all += count;
  const Json model = {{"schema", "pipewright.model/1"},
                      {"name", "gpt"},
                      {"transformer",
                       {{"hidden", 64},
                        {"layers", all},
                        {"heads", 4},
                        {"ffn", 256},
                        {"vocabulary", 512},
                        {"sequence", 32}}},
                      {"bytes_per_element", 2}};
  Plan plan;
  plan.model = read_model(JsonCursor(model, "model.json"));
  plan.cluster = cluster_preset("local-cpu", ranks * replicas);
  plan.mesh = Mesh::data_parallel(replicas, ranks);
  plan.micro_batches = 8;
  plan.micro_batch_size = 2;
  plan.schedule.name = schedule;
  plan.schedule.chunks = static_cast<int>(blocks.size()) / ranks;
  int layer = 0;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    StagePlan held;
    held.first_layer = layer;
    layer += blocks[stage] + (stage == 0 ? 1 : 0) + (stage + 1 == blocks.size() ? 1 : 0);
    held.end_layer = layer;
    held.rank = RankId(static_cast<int>(stage) % ranks);
    plan.stages.push_back(held);
  }
  plan.costs = CostTable::uniform(static_cast<int>(blocks.size()), {});
  return plan;
}

inline planner::ExportedPlan exported(const Plan& plan, const std::string& format) {
  return planner::find_export_format(format).write(plan);
}

inline std::string text_of(const Plan& plan, const std::string& format) {
  const planner::ExportedPlan result = exported(plan, format);
  EXPECT_TRUE(result.refusals.empty()) << result.refusals.front();
  EXPECT_TRUE(result.text.ends_with('\n'));
  return result.text;
}

inline std::string refusal_of(const Plan& plan, const std::string& format) {
  const planner::ExportedPlan result = exported(plan, format);
  EXPECT_TRUE(result.text.empty());
  return result.refusals.empty() ? "" : result.refusals.front();
}

inline bool notes(const planner::ExportedPlan& result, const std::string& words) {
  return std::any_of(result.notes.begin(), result.notes.end(), [&](const std::string& note) {
    return note.find(words) != std::string::npos;
  });
}

}  // namespace pipewright::test
