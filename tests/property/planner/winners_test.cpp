// Synthesis on the winners of a search: on random jobs of both sources of costs the result is never
// worse for it, keeps to memory and to what the simulator says, and does not depend on threads,
// bounds or the length of the table.
#include <gtest/gtest.h>

#include "core/model/architecture_model.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "planner/synthesis/idle_slots.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "sim/engine.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace winners_test {

using test::Draw;

constexpr int kRows = 10;

/// Schedules are open, the meshes few.
Job estimated_job(std::uint32_t seed) {
  Draw random(seed);
  const int heads = random.one_of(8, 16, 32);
  Architecture model = gpt_architecture("gpt", 64 * heads, random.one_of(6, 8, 12), heads, 32000,
                                        random.one_of(512, 1024));
  model.tied_head = random.coin();
  Job job;
  job.architecture = model;
  job.model = model_of(model);
  job.cluster = cluster_preset(random.coin() ? "dgx-a100" : "dgx-h100", 8);
  if (random.coin()) {
    job.cluster.nodes = 4;
    job.cluster.devices_per_node = 2;
  }
  job.cluster.device.memory = Bytes(job.cluster.device.memory.value / random.one_of(1, 8, 30));
  job.global_batch = random.one_of(8, 16, 24);
  job.strategy.mp_degree = {"1"};
  job.strategy.pp_degree = {random.coin() ? "2" : "4"};
  job.strategy.micro_batch_size = {"1"};
  job.strategy.sharding_stage = {"0", "1"};
  job.strategy.vpp_degree = {"1", "2"};
  if (random.coin()) job.strategy.recompute = {"none", "by_stage"};
  return job;
}

Job layered_job(std::uint32_t seed) {
  Draw random(seed);
  Job job;
  job.model = model_preset(random.coin() ? "gpt-tiny" : "resnet-tiny");
  job.cluster = cluster_preset(random.below(4) == 0 ? "dgx-a100" : "local-cpu", 8);
  if (random.coin()) job.cluster.device.memory = Bytes(random.one_of(4, 8, 16) << 20);
  job.global_batch = random.one_of(8, 12, 16);
  job.strategy.pp_degree = {"2", "3", "4"};
  job.strategy.dp_degree = {random.coin() ? "1" : "2"};
  job.training.optimizer = random.coin() ? "adamw" : "sgd";
  if (random.below(4) == 0) job.training.clip_grad_norm = 1;
  return job;
}

SearchResult searched(const Job& job, bool synthesis, bool exhaustive = false, int threads = 0,
                      int keep = kRows) {
  SearchOptions options = test::search_options(keep, exhaustive, threads);
  options.synthesis = synthesis;
  options.cores = 8;
  return search(job, nullptr, options);
}

/// The rows of named schedules stay as they were, as many as the table has room for.
void expect_named_rows_stay(const SearchResult& with, const SearchResult& without) {
  std::size_t next = 0;
  for (const Candidate& row : with.ranked) {
    if (row.synthesised) continue;
    ASSERT_LT(next, without.ranked.size());
    EXPECT_EQ(describe(row), describe(without.ranked[next]));
    EXPECT_EQ(row.step, without.ranked[next++].step);
  }
  EXPECT_EQ(with.pruned, without.pruned);
  EXPECT_EQ(with.evaluated, without.evaluated);
  EXPECT_EQ(with.configurations, without.configurations);
  ASSERT_EQ(with.baselines.size(), without.baselines.size());
}

void expect_keeps_to_memory(const SearchResult& result, Bytes limit) {
  const std::vector<Bytes>& peaks = result.best->predicted.peak_bytes;
  const std::size_t ranks = static_cast<std::size_t>(result.best->ranks());
  for (std::size_t r = 0; r < peaks.size(); ++r)
    EXPECT_LE(peaks[r], result.rank_memory.empty() ? limit : result.rank_memory[r % ranks]);
}

/// How many of the jobs have a better plan for it.
int better_plans(Job (*job_of)(std::uint32_t), std::uint32_t seeds) {
  int better = 0;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    const Job job = job_of(seed);
    const SearchResult with = searched(job, true), without = searched(job, false);
    EXPECT_EQ(with.best.has_value(), without.best.has_value());
    if (!with.best) continue;
    expect_named_rows_stay(with, without);
    EXPECT_LE(with.ranked.front().step, without.ranked.front().step);
    EXPECT_FALSE(without.synthesis);
    EXPECT_TRUE(with.synthesis);
    for (const Candidate& row : with.ranked) {
      if (!row.synthesised) continue;
      EXPECT_EQ(row.schedule, "auto");
      EXPECT_LT(row.step, row.synthesised->from_step);
    }
    if (!with.ranked.front().synthesised) continue;
    ++better;
    test::expect_survives_its_file(with);
    expect_keeps_to_memory(with, costs_of_job(job, nullptr, 8)->memory_limit());
  }
  return better;
}

TEST(Winners, AnEstimatedJobIsNeverWorseForTheirSynthesis) {
  EXPECT_GT(better_plans(estimated_job, 24), 6);
}

TEST(Winners, AJobPlannedLayerByLayerIsNeverWorseForTheirSynthesis) {
  EXPECT_GT(better_plans(layered_job, 40), 2);
}

TEST(Winners, NeitherThreadsNorBoundsNorTheLengthOfTheTableChangeTheBest) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const Job job = seed % 2 == 0 ? estimated_job(seed) : layered_job(seed);
    const SearchResult one = searched(job, true, false, 1);
    test::expect_same_search(one, searched(job, true, false, 2));
    const SearchResult all = searched(job, true, true);
    test::expect_same_rows(one, all);
    const SearchResult row = searched(job, true, false, 0, 1);
    ASSERT_EQ(one.best.has_value(), row.best.has_value());
    if (!one.best) continue;
    EXPECT_EQ(row.ranked.size(), 1u);
    EXPECT_EQ(describe(row.ranked.front()), describe(one.ranked.front()));
    EXPECT_EQ(row.ranked.front().step, one.ranked.front().step);
    EXPECT_EQ(order_of_plan(*row.best).ranks, order_of_plan(*one.best).ranks);
    ASSERT_EQ(one.synthesis->orders, all.synthesis->orders);
  }
}

TEST(Winners, AreLeftAloneWhereTheJobNamesSchedulesOrTheBudgetRanOut) {
  Job job = layered_job(1);
  SearchOptions options;
  options.budget_seconds = 1e-9;
  EXPECT_FALSE(search(job, nullptr, options).synthesis);
  job.strategy.schedule_mode = {"1f1b", "gpipe"};
  const SearchResult named = search(job);
  EXPECT_FALSE(named.synthesis);
  for (const Candidate& row : named.ranked) EXPECT_FALSE(row.synthesised);
}

SynthesisRequest request_with_updates(std::uint32_t seed) {
  Draw random(seed);
  const int ranks = 2 + random.below(3);
  SynthesisRequest request;
  request.placement = random.coin() ? Placement::v_shape(ranks) : Placement::loop(ranks, 1);
  request.micro_batches = 2 + random.below(5);
  for (int s = 0; s < request.placement.stages(); ++s) {
    StageCosts stage{.f = Nanoseconds(5 + random.below(20)),
                     .i = Nanoseconds(5 + random.below(20)),
                     .w = Nanoseconds(5 + random.below(20)),
                     .opt = Nanoseconds(random.below(60))};
    stage.b = stage.i + stage.w;
    request.costs.stages.push_back(stage);
  }
  request.costs.every_route.latency = Nanoseconds(random.below(10));
  request.with_updates = true;
  request.steps = 20'000;
  request.runners_up = 4;
  return request;
}

TEST(SynthesisWithUpdates, SaysWhatTheSimulatorSaysOfTheOrderAndItsUpdates) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const SynthesisRequest request = request_with_updates(seed);
    const SynthesisResult result = synthesise(request);
    ASSERT_TRUE(result.order);
    const Program program =
        lower(*result.order, comm_policy_preset("ideal"), LowerOptions{.optimizer = true});
    const sim::Result simulated = sim::simulate(program, request.costs);
    ASSERT_TRUE(simulated.finished);
    EXPECT_EQ(result.makespan_ns,
              figures_of(program, simulated.timeline, request.costs).makespan_ns);
    EXPECT_LE(result.lower_bound_ns, result.value_ns);
    EXPECT_LE(synthesis_bound(request), result.value_ns);
    SynthesisRequest proved = request;
    proved.prove = true;
    proved.prove_nodes = 20'000;
    const SynthesisResult best = synthesise(proved);
    EXPECT_LE(best.value_ns, result.value_ns);
    EXPECT_LE(synthesis_bound(request), best.value_ns);
    // What is proved holds for every order that was ever the best.
    for (const Order& order : result.runners_up) {
      const Program other =
          lower(order, comm_policy_preset("ideal"), LowerOptions{.optimizer = true});
      const sim::Result slower = sim::simulate(other, request.costs);
      EXPECT_GT(figures_of(other, slower.timeline, request.costs).makespan_ns, result.value_ns);
      EXPECT_GE(figures_of(other, slower.timeline, request.costs).makespan_ns, best.lower_bound_ns);
    }
  }
}

std::string without_idle(const Order& order) {
  std::string text;
  for (const auto& cells : order.ranks) {
    for (const Cell& cell : cells) {
      if (cell.action.kind != ActionKind::Idle) text += to_string(cell) + " ";
    }
    text += "|";
  }
  return text;
}

TEST(IdleSlots, AddEmptyCellsAndNothingElse) {
  for (const char* name : {"1f1b", "paddle-zbh1", "zb-h1", "gpipe"}) {
    SynthesisRequest request = request_with_updates(0);
    request.placement = Placement::loop(4, 1);
    request.micro_batches = 8;
    request.costs = CostTable::uniform(
        4, {.f = Nanoseconds(7), .i = Nanoseconds(9), .w = Nanoseconds(5), .b = Nanoseconds(14)});
    const Order order = make_order(name, {.ranks = 4, .micro_batches = 8});
    const Order padded = with_idle_slots(request, order);
    EXPECT_EQ(without_idle(padded), without_idle(order)) << name;
    for (std::size_t r = 1; r < 4; ++r) {
      EXPECT_LE(padded.ranks[r].size(), 4 * 3 * 8u);
      EXPECT_EQ(padded.ranks[r][r - 1].action.kind, ActionKind::Idle);  // it waits for its first F
    }
  }
}

}  // namespace winners_test
}  // namespace pipewright::planner
