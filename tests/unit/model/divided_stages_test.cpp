// Plans whose stages are divided among the devices of a rank (tp), of models that are planned layer
// by layer.
#include "planner/configurations/divided_stages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/search/search.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace divided_stages_test {

Cluster cores(int devices) {
  Cluster cluster = cluster_preset("local-cpu");
  cluster.name = "cores";
  cluster.device.model = "core";
  cluster.devices_per_node = devices;
  return cluster;
}

Job job_of(const char* model, int tensor, int ranks, int replicas = 1) {
  Job job;
  job.model = model_preset(model);
  job.cluster = cores(8);
  job.global_batch = 16;
  job.strategy.mp_degree = {std::to_string(tensor)};
  job.strategy.dp_degree = {std::to_string(replicas)};
  job.strategy.pp_degree = {std::to_string(ranks)};
  job.training.clip_grad_norm = 1;
  return job;
}

class DividedStages : public testing::TestWithParam<const char*> {};

/// The plan as a file is the same plan, and takes the step of its row in the table. Gives it back.
Plan expect_same_as_a_file(const SearchResult& result) {
  const Plan& plan = result.best.value();
  EXPECT_EQ(plan.executable.at("cpu").answer, Executable::Answer::Yes);
  EXPECT_EQ(plan.predicted.step, result.ranked.front().step);
  const Json json = to_json(plan);
  Plan again = read_plan(JsonCursor(json, "plan.json"));
  EXPECT_EQ(to_json(again), json);
  EXPECT_EQ(sim::simulate(program_of_plan(again), again.costs).timeline.makespan_ns,
            plan.predicted.step.value);
  return again;
}

/// The row of the table, whose actions are single numbers; the plan, whose ranks stand for devices;
/// and the run, where every device is a rank, take the same step.
void expect_one_step(const SearchResult& result) {
  ASSERT_TRUE(result.best.has_value());
  const Plan& plan = *result.best;
  ASSERT_FALSE(plan.parts.empty());
  const sim::Result devices = sim::simulate(program_of_run(plan), costs_of_run(plan));
  ASSERT_TRUE(devices.finished);
  EXPECT_EQ(devices.timeline.makespan_ns, plan.predicted.step.value);
  const Plan again = expect_same_as_a_file(result);
  EXPECT_EQ(again.parts, plan.parts);
  EXPECT_EQ(order_of_run(again).parts, plan.parts);  // its parts are still the layers'
}

TEST_P(DividedStages, APlanIsPredictedAsItsDevicesAreSimulated) {
  const std::string model = GetParam();
  const bool shares_keys = model == "llama-tiny" || model == "mixtral-tiny";  // two heads of them
  for (const int tensor : shares_keys ? std::vector{2} : std::vector{2, 4}) {
    for (const int ranks : {1, 2}) {
      for (const int replicas : {1, 2}) {
        if (tensor * ranks * replicas > 8) continue;
        SCOPED_TRACE("tp " + std::to_string(tensor) + ", pp " + std::to_string(ranks) + ", dp " +
                     std::to_string(replicas));
        const SearchResult result = search(job_of(GetParam(), tensor, ranks, replicas));
        expect_one_step(result);
        ASSERT_TRUE(result.best.has_value());
        EXPECT_EQ(result.best->mesh.size("tp"), tensor);
        EXPECT_EQ(result.best->all_ranks(), ranks * replicas);
      }
    }
  }
}

TEST_P(DividedStages, DevicesThatDivideRowsTooArePredictedAsTheyAreSimulated) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE("pp " + std::to_string(ranks));
    Job job = job_of(GetParam(), 2, ranks);
    job.strategy.schedule_mode = {"1f1b"};
    job.strategy.accumulate_steps = {"4"};
    const SearchResult whole = search(job);
    job.strategy.use_sequence_parallel = {"true"};
    const SearchResult divided = search(job);
    expect_one_step(divided);
    ASSERT_TRUE(whole.best && divided.best);
    EXPECT_TRUE(divided.best->sequence_parallel);
    EXPECT_LT(divided.ranked.front().peak_bytes, whole.ranked.front().peak_bytes);
    if (ranks == 1) continue;
    const CostTable &all = whole.best->costs, &own = divided.best->costs;
    EXPECT_EQ(2 * own.activation_bytes.front().value, all.activation_bytes.front().value);
    EXPECT_EQ(2 * own.gradient_bytes.front().value, all.gradient_bytes.front().value);
  }
}

/// What replicas exchange is in the Program, whether a node ends between them or not.
TEST(DividedStages, ReplicasOnSeveralNodesReduceTheirPartsOfTheGradients) {
  for (const int per_node : {2, 4, 8}) {
    for (const int sharding : {1, 2}) {
      SCOPED_TRACE(std::to_string(per_node) + " devices a node");
      Job job = job_of("gpt-tiny", 2, 2, 2);
      job.cluster = cluster_preset("dgx-a100", 8);
      job.cluster.nodes = 8 / per_node;
      job.cluster.devices_per_node = per_node;
      job.strategy.sharding_degree = sharding;
      const SearchResult result = search(job);
      expect_one_step(result);
      const Program program = program_of_run(*result.best);
      const auto reductions = std::count_if(
          program.collectives.begin(), program.collectives.end(), [](const Collective& one) {
            return one.kind == ActionKind::ReduceGrad && one.members.size() == 2;
          });
      EXPECT_EQ(reductions, 4);  // of two stages, both halves of each
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DividedStages,
                         testing::Values("gpt-tiny", "llama-tiny", "mixtral-tiny", "deepseek-tiny"),
                         [](const auto& one) {
                           const std::string name = one.param;
                           return name.substr(0, name.find('-'));
                         });

/// In each job a rank holds and computes less than in the one before.
void expect_less_and_less(std::vector<Job> jobs) {
  Nanoseconds before(INT64_MAX);
  Bytes held(INT64_MAX);
  for (Job& job : jobs) {
    job.strategy.accumulate_steps = {"4"};
    const SearchResult result = search(job);
    ASSERT_FALSE(result.ranked.empty());
    EXPECT_LT(result.ranked.front().step, before);
    EXPECT_LT(result.ranked.front().peak_bytes, held);
    before = result.ranked.front().step;
    held = result.ranked.front().peak_bytes;
  }
}

std::set<int> tried(const Job& job, int ParallelSetup::*degree) {
  std::set<int> found;
  for (const Candidate& row : search(job, nullptr, {.keep = 1000}).ranked)
    found.insert(row.parallel.*degree);
  return found;
}

TEST(DividedStages, EachDeviceHoldsAndComputesLess) {
  expect_less_and_less(
      {job_of("gpt-tiny", 1, 1), job_of("gpt-tiny", 2, 1), job_of("gpt-tiny", 4, 1)});
}

TEST(DividedStages, AnOpenDegreeTriesWhatDividesTheLayers) {
  Job job = job_of("gpt-tiny", 1, 1);
  job.strategy.mp_degree = {};
  EXPECT_EQ(tried(job, &ParallelSetup::tensor), (std::set{1}));
  job.strategy.opens_mp_degree = true;
  EXPECT_EQ(tried(job, &ParallelSetup::tensor), (std::set{1, 2, 4}));  // four heads
}

TEST(DividedStages, RowsAreDividedWhereTheJobSaysSoAndTheyCanBe) {
  Job job = job_of("gpt-tiny", 1, 1);
  job.strategy.mp_degree = {"1", "2"};
  job.strategy.use_sequence_parallel = {"false", "true"};
  std::set<std::pair<int, bool>> found;
  const SearchResult result = search(job, nullptr, {.keep = 1000});
  for (const Candidate& row : result.ranked)
    found.emplace(row.parallel.tensor, row.parallel.sequence_parallel);
  EXPECT_EQ(found, (std::set<std::pair<int, bool>>{{1, false}, {2, false}, {2, true}}));
  EXPECT_EQ(result.pruned.count(LeftOutReason(LeftOut::SequenceWithoutTensor)), 1U);
  job.model.sequence = 31;
  EXPECT_EQ(search(job).pruned.count(LeftOutReason(LeftOut::IndivisibleRows)), 1U);
}

Job with_experts(int replicas, int experts) {
  Job job = job_of("mixtral-tiny", 1, 2, replicas);
  job.strategy.ep_degree = {std::to_string(experts)};
  job.strategy.accumulate_steps = {"4"};
  return job;
}

TEST(DividedStages, OpenExpertsTryWhatDividesThem) {
  Job job = with_experts(4, 1);
  job.strategy.ep_degree = {};
  const auto degrees = [](const Job& asked) {
    std::set<int> found;
    for (const Candidate& row : search(asked, nullptr, {.keep = 1000}).ranked)
      found.insert(row.parallel.experts);
    return found;
  };
  EXPECT_EQ(degrees(job), (std::set{1}));
  job.strategy.opens_ep_degree = true;
  EXPECT_EQ(degrees(job), (std::set{1, 2, 4}));  // of four replicas
  job.model = model_preset("gpt-tiny");
  EXPECT_EQ(degrees(job), (std::set{1})) << "it has none";
}

TEST(DividedStages, OpenRowsAreTriedBothWays) {
  Job job = job_of("gpt-tiny", 2, 1);
  job.strategy.opens_sequence_parallel = true;
  std::set<bool> found;
  for (const Candidate& row : search(job, nullptr, {.keep = 1000}).ranked)
    found.insert(row.parallel.sequence_parallel);
  EXPECT_EQ(found, (std::set{false, true}));
}

TEST(DividedStages, ReplicasThatDivideTheExpertsAreDevicesOfOneRank) {
  Job job = with_experts(4, 2);
  job.training.clip_grad_norm = 0;  // its sum counts a block of devices as one rank in a run
  const Plan plan = search(job).best.value();
  EXPECT_EQ(plan.expert_parallel, 2);
  EXPECT_EQ(plan.executable.at("cpu").answer, Executable::Answer::Yes);
  const Order order = order_of_run(plan);
  EXPECT_EQ(order.devices, (std::vector<MeshAxis>{{"ep", 2}}));
  EXPECT_EQ(order.rank_count(), 8);
  EXPECT_EQ(order.micro_batches, 4 * plan.micro_batches);
  ASSERT_FALSE(order.parts.empty());
  // The exchanges take the time in a run that the plan has for them inside its stages.
  const auto exchange = std::ranges::find_if(
      order.parts.front().parts, [](const Part& part) { return !part.is_computation(); });
  ASSERT_NE(exchange, order.parts.front().parts.end());
  EXPECT_GE(exchange->weight, plan.cluster.inside.latency.value);
  const CostTable costs = costs_of_run(plan);
  EXPECT_LT(costs.stages[0].f, plan.costs.stages[0].f);
  const sim::Result run = sim::simulate(program_of_run(plan), costs);
  ASSERT_TRUE(run.finished);
  EXPECT_EQ(run.timeline.makespan_ns, plan.predicted.step.value);
}

Job with_sequences(const char* model, int context, int tensor, int ranks, int replicas) {
  Job job = job_of(model, tensor, ranks, replicas);
  job.strategy.cp_degree = {std::to_string(context)};
  job.training.clip_grad_norm = 0;  // its sum counts a block of devices as one rank in a run
  return job;
}

/// Sums along tp are parts of the plan's actions; what ranks along cp gather and scatter is in the
/// times of F and I, and they are replicas to the sums of gradients.
void expect_one_step_along_cp(const Job& job) {
  const SearchResult result = search(job);
  ASSERT_TRUE(result.best.has_value());
  const Plan& plan = *result.best;
  EXPECT_TRUE(plan.replicas_are_ranks);
  EXPECT_EQ(plan.all_ranks(), plan.ranks() * plan.replicas() * plan.division().context);
  const Plan again = expect_same_as_a_file(result);
  const sim::Result run = sim::simulate(program_of_run(again), costs_of_run(again));
  ASSERT_TRUE(run.finished);
  EXPECT_EQ(run.timeline.makespan_ns, plan.predicted.step.value);
  // Exact numerics sum the gradients of every micro-batch.
  const sim::Result exact =
      sim::simulate(program_of_run(again, exec::Numerics::Exact), costs_of_run(again));
  ASSERT_TRUE(exact.finished);
  EXPECT_GT(exact.timeline.makespan_ns, plan.predicted.step.value);
}

TEST(DividedStages, RanksThatDivideSequencesArePredictedAsTheyAreSimulated) {
  for (const char* model : {"gpt-tiny", "llama-tiny", "mixtral-tiny", "deepseek-tiny"}) {
    for (const int tensor : {1, 2}) {
      for (const int ranks : {1, 2}) {
        for (const int replicas : {1, 2}) {
          if (2 * tensor * ranks * replicas > 8) continue;
          SCOPED_TRACE(std::string(model) + ", tp " + std::to_string(tensor) + ", pp " +
                       std::to_string(ranks) + ", dp " + std::to_string(replicas));
          Job job = with_sequences(model, 2, tensor, ranks, replicas);
          expect_one_step_along_cp(job);
          if (tensor > 1) {
            Job beside = job;
            beside.strategy.use_sequence_parallel = {"true"};
            expect_one_step_along_cp(beside);
          }
          if (replicas == 1) continue;
          job.strategy.sharding_degree = 2;
          for (const char* zero : {"1", "2", "3"}) {
            job.strategy.sharding_stage = {zero};
            expect_one_step_along_cp(job);
          }
        }
      }
    }
  }
}

TEST(DividedStages, RanksThatDivideSequencesAndExpertsArePredictedAsTheyAreSimulated) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE("pp " + std::to_string(ranks));
    Job job = with_sequences("mixtral-tiny", 2, 1, ranks, 2);
    job.strategy.ep_degree = {"2"};
    expect_one_step_along_cp(job);
  }
}

TEST(DividedStages, OpenSequencesOfModelsWithExpertsAreTriedBesideOpenExperts) {
  Job job = with_sequences("mixtral-tiny", 1, 1, 1, 2);
  job.strategy.cp_degree = {};
  job.strategy.ep_degree = {};
  job.strategy.opens_cp_degree = job.strategy.opens_ep_degree = true;
  std::set<std::pair<int, int>> found;
  for (const Candidate& row : search(job, nullptr, {.keep = 1000}).ranked)
    found.emplace(row.parallel.context, row.parallel.experts);
  EXPECT_EQ(found, (std::set<std::pair<int, int>>{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {4, 1}, {4, 2}}));
}

TEST(DividedStages, RanksThatDivideSequencesOnSeveralNodesTakeTheirRoutes) {
  for (const int per_node : {2, 4, 8}) {
    SCOPED_TRACE(std::to_string(per_node) + " devices a node");
    Job job = with_sequences("gpt-tiny", 2, 1, 2, 2);
    job.cluster = cluster_preset("dgx-a100", 8);
    job.cluster.nodes = 8 / per_node;
    job.cluster.devices_per_node = per_node;
    expect_one_step_along_cp(job);
  }
}

TEST(DividedStages, EachRankAlongCpHoldsAndComputesLess) {
  std::vector<Job> jobs;
  for (const int context : {1, 2, 4}) {
    jobs.push_back(with_sequences("llama-tiny", context, 1, 1, 1));
    jobs.back().model.sequence = 256;  // else latencies are most of it
  }
  expect_less_and_less(std::move(jobs));
}

TEST(DividedStages, OpenSequencesTryWhatDividesThem) {
  Job job = with_sequences("gpt-tiny", 1, 1, 1, 1);
  job.strategy.cp_degree = {};
  EXPECT_EQ(tried(job, &ParallelSetup::context), (std::set{1}));
  job.strategy.opens_cp_degree = true;
  EXPECT_EQ(tried(job, &ParallelSetup::context), (std::set{1, 2, 4, 8}));
  job.model.sequence = 24;
  EXPECT_EQ(tried(job, &ParallelSetup::context), (std::set{1, 2, 4}))
      << "16 chunks do not divide 24 tokens";
}

TEST(DividedStages, ReplicasWithFewerExpertsHoldLessAndExchangeRows) {
  const SearchResult whole = search(with_experts(4, 1)), divided = search(with_experts(4, 4));
  ASSERT_FALSE(whole.ranked.empty());
  ASSERT_FALSE(divided.ranked.empty());
  EXPECT_LT(divided.ranked.front().peak_bytes, whole.ranked.front().peak_bytes);
  const auto f_of = [](const SearchResult& result) {
    return result.best.value().costs.stages.back().f;
  };
  EXPECT_GT(f_of(divided), f_of(whole)) << "computes as much, and waits for rows";
}

/// Sums along tp are parts of the plan's actions, exchanges along ep are in their times.
TEST(DividedStages, ExpertsAreDividedBesideLayersAndShareOutTheOptimizersState) {
  Job job = with_experts(2, 2);
  job.strategy.mp_degree = {"2"};
  job.training.clip_grad_norm = 0;  // its sum counts a block of devices as one rank in a run
  const Plan beside = search(job).best.value();
  ASSERT_FALSE(beside.parts.empty());
  for (const ActionParts& action : beside.parts) {
    for (std::size_t k = 0; k < action.parts.size(); ++k)
      EXPECT_EQ(action.parts[k].is_computation(), k % 2 == 0);
  }
  const Order order = order_of_run(beside);
  EXPECT_EQ(order.devices, (std::vector<MeshAxis>{{"tp", 2}, {"ep", 2}}));
  const sim::Result run = sim::simulate(program_of_run(beside), costs_of_run(beside));
  ASSERT_TRUE(run.finished);
  EXPECT_EQ(run.timeline.makespan_ns, beside.predicted.step.value);

  const Bytes whole = search(with_experts(4, 2)).ranked.at(0).peak_bytes;
  for (const char* zero : {"1", "2", "3"}) {
    Job sharded = with_experts(4, 2);
    sharded.strategy.sharding_degree = 4;
    sharded.strategy.sharding_stage = {zero};
    const SearchResult result = search(sharded);
    ASSERT_TRUE(result.best.has_value());
    EXPECT_EQ(result.best->executable.at("cpu").answer, Executable::Answer::Yes);
    EXPECT_LT(result.ranked.front().peak_bytes, whole);
  }
}

TEST(DividedStages, ReplicasThatCannotDivideTheExpertsAreRefused) {
  Plan plan = search(with_experts(4, 2)).best.value();
  plan.expert_parallel = 3;
  try {
    order_of_run(plan);
    ADD_FAILURE() << "not refused";
  } catch (const InputError& error) {
    EXPECT_EQ(error.message(),
              "the plan's expert_parallel, 3, does not divide its replicas, dp 4; make it one of "
              "its divisors");
  }
}

TEST(DividedStages, WhatCannotBeDividedIsLeftOutByName) {
  const SearchResult odd = search(job_of("gpt-tiny", 3, 1));
  EXPECT_FALSE(odd.best.has_value());
  EXPECT_EQ(odd.pruned.count(LeftOutReason(LeftOut::IndivisibleLayers)), 1U);
  Job asynchronous = job_of("gpt-tiny", 2, 2);
  asynchronous.strategy.schedule_mode = {"pipedream"};
  asynchronous.training.clip_grad_norm = 0;
  const SearchResult refused = search(asynchronous);
  EXPECT_FALSE(refused.best.has_value());
  EXPECT_EQ(refused.pruned.count(LeftOutReason(LeftOut::AsynchronousWithDividedLayers)), 1U);
  Job clipped = job_of("gpt-tiny", 1, 2);
  clipped.strategy.schedule_mode = {"pipedream", "pipedream-2bw"};
  const SearchResult without_norm = search(clipped);
  EXPECT_FALSE(without_norm.best.has_value());
  EXPECT_GE(without_norm.pruned.count(LeftOutReason(LeftOut::AsynchronousWithClipping)), 1U);
  ASSERT_FALSE(without_norm.nearest.empty());
  EXPECT_NE(without_norm.nearest.front().find("clip_grad_norm"), std::string::npos)
      << without_norm.nearest.front();
  for (const Job& apart : {with_experts(4, 3), with_experts(3, 2)})
    EXPECT_EQ(search(apart).pruned.count(LeftOutReason(LeftOut::ExpertsApart)), 1U);
  EXPECT_EQ(search(with_sequences("gpt-tiny", 3, 1, 1, 1))
                .pruned.count(LeftOutReason(LeftOut::IndivisibleSequences)),
            1U);
  Job beside = with_sequences("gpt-tiny", 2, 4, 1, 1);
  beside.strategy.use_sequence_parallel = {"true"};
  beside.model.sequence = 12;  // of which each rank along cp has 6
  EXPECT_EQ(search(beside).pruned.count(LeftOutReason(LeftOut::ContextBesideOthers)), 1U);
  Job groups = with_experts(4, 4);
  groups.strategy.sharding_degree = 2;
  EXPECT_EQ(search(groups).pruned.count(LeftOutReason(LeftOut::ExpertsAcrossGroups)), 1U);
}

}  // namespace divided_stages_test
}  // namespace pipewright::planner
