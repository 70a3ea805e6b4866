// Plans of models whose whole experts are dealt out among the ranks along tp, too
// (expert_tensor_parallel_size 1), planned layer by layer.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/plan/rank_axes.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/search/search.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace folded_plans_test {

struct Degrees {
  int ranks = 1, replicas = 1, context = 1, experts = 2;
};

Job job_of(const char* model, const Degrees& degrees) {
  Job job;
  job.model = model_preset(model);
  job.cluster = cluster_preset("local-cpu");
  job.cluster.name = "cores";
  job.cluster.device.model = "core";
  job.cluster.devices_per_node = 16;
  job.global_batch = 16;
  job.strategy.mp_degree = {"2"};
  job.strategy.pp_degree = {std::to_string(degrees.ranks)};
  job.strategy.dp_degree = {std::to_string(degrees.replicas)};
  job.strategy.cp_degree = {std::to_string(degrees.context)};
  job.strategy.ep_degree = {std::to_string(degrees.experts)};
  job.strategy.use_sequence_parallel = {"true"};
  job.strategy.expert_tensor_parallel_size = {"1"};
  job.strategy.accumulate_steps = {"4"};
  return job;
}

/// The row of the table, the plan as a file, and the run, where every device is a rank, take the
/// same step.
void expect_one_step(const SearchResult& result) {
  ASSERT_TRUE(result.best.has_value());
  const Plan& plan = *result.best;
  EXPECT_EQ(plan.executable.at("cpu").answer, Executable::Answer::Yes);
  EXPECT_EQ(plan.expert_tensor_parallel, 1);
  EXPECT_EQ(plan.predicted.step, result.ranked.front().step);
  const Json json = to_json(plan);
  const Plan again = read_plan(JsonCursor(json, "plan.json"));
  EXPECT_EQ(to_json(again), json);
  EXPECT_EQ(again.division(), plan.division());
  EXPECT_EQ(sim::simulate(program_of_plan(again), again.costs).timeline.makespan_ns,
            plan.predicted.step.value);
  const sim::Result devices = sim::simulate(program_of_run(again), costs_of_run(again));
  ASSERT_TRUE(devices.finished);
  EXPECT_EQ(devices.timeline.makespan_ns, plan.predicted.step.value);
}

TEST(FoldedPlans, ArePredictedAsTheirDevicesAreSimulated) {
  for (const char* model : {"mixtral-tiny", "deepseek-tiny"}) {
    for (const Degrees& degrees :
         {Degrees{.experts = 2}, Degrees{.ranks = 2, .experts = 2},
          Degrees{.ranks = 2, .replicas = 2, .experts = 2},
          Degrees{.ranks = 2, .replicas = 2, .experts = 4}, Degrees{.replicas = 4, .experts = 4},
          Degrees{.context = 2, .experts = 2}, Degrees{.ranks = 2, .context = 2, .experts = 4},
          Degrees{.replicas = 2, .context = 2, .experts = 8}}) {
      SCOPED_TRACE(std::string(model) + ", pp " + std::to_string(degrees.ranks) + ", dp " +
                   std::to_string(degrees.replicas) + ", cp " + std::to_string(degrees.context) +
                   ", ep " + std::to_string(degrees.experts));
      Job job = job_of(model, degrees);
      job.training.clip_grad_norm = 0;  // its sum counts a block of devices as one rank in a run
      expect_one_step(search(job));
    }
  }
}

TEST(FoldedPlans, TheRunHasTheExchangesAsPartsOfItsActions) {
  const Plan plan = search(job_of("mixtral-tiny", {.replicas = 2, .experts = 4})).best.value();
  const Order order = order_of_run(plan);
  EXPECT_EQ(order.devices, (std::vector<MeshAxis>{{"tp", 2}, {"ep", 2}}));
  std::set<std::string> groups;
  for (const ActionParts& action : order.parts) {
    for (const Part& part : action.parts)
      if (part.call.kind == ActionKind::AllToAll) groups.insert(part.call.group);
  }
  EXPECT_EQ(groups, (std::set<std::string>{"tp+ep"}));
}

TEST(FoldedPlans, ARankHoldsFewerExpertsThanWhereAllAlongTpHaveTheSame) {
  Job job = job_of("mixtral-tiny", {.replicas = 2, .experts = 4});
  const Bytes folded = search(job).ranked.at(0).peak_bytes;
  job.strategy.expert_tensor_parallel_size = {};
  job.strategy.ep_degree = {"2"};
  EXPECT_LT(folded, search(job).ranked.at(0).peak_bytes);
}

TEST(FoldedPlans, OpenOnesAreTriedBesideThoseThatAreAsAlongTp) {
  Job job = job_of("mixtral-tiny", {.replicas = 2});
  job.strategy.ep_degree = {"1", "2", "4"};
  job.strategy.expert_tensor_parallel_size = {};
  const auto tried = [&] {
    std::set<std::pair<int, int>> found;
    for (const Candidate& row : search(job, nullptr, {.keep = 1000}).ranked)
      found.emplace(row.parallel.experts, row.parallel.expert_tensor());
    return found;
  };
  EXPECT_EQ(tried(), (std::set<std::pair<int, int>>{{1, 2}, {2, 2}}));
  job.strategy.opens_expert_tensor_parallel_size = true;
  EXPECT_EQ(tried(), (std::set<std::pair<int, int>>{{1, 2}, {2, 2}, {2, 1}, {4, 1}}));
}

std::string nearest(const Job& job) {
  const SearchResult result = search(job);
  EXPECT_FALSE(result.best.has_value());
  EXPECT_EQ(result.pruned.count(LeftOutReason(LeftOut::ExpertsApart)), 1U);
  std::string text;
  for (const std::string& sentence : result.nearest) text += sentence + "\n";
  return text;
}

TEST(FoldedPlans, WhatCannotBeDealtOutIsLeftOutByName) {
  nearest(job_of("mixtral-tiny", {.replicas = 2, .experts = 3}));
  Job job = job_of("mixtral-tiny", {.replicas = 2});
  job.strategy.use_sequence_parallel = {"false"};
  nearest(job);
  job = job_of("mixtral-tiny", {});
  job.strategy.mp_degree = {"4"};
  job.model = model_preset("deepseek-tiny");
  job.strategy.ep_degree = {"4"};
  job.strategy.expert_tensor_parallel_size = {"2"};
  nearest(job);

  Plan plan = search(job_of("mixtral-tiny", {.replicas = 2, .experts = 4})).best.value();
  plan.expert_parallel = 3;
  try {
    order_of_run(plan);
    ADD_FAILURE() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(error.message().find("the nearest are 2 and 4"), std::string::npos);
  }
}

}  // namespace folded_plans_test
}  // namespace pipewright::planner
