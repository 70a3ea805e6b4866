// The bound from the way of a micro-batch: known answers where it is the step, and on random jobs
// whose messages and reductions take long, under any policy, never above what is simulated.
#include "planner/branches/flow_bound.hpp"

#include <gtest/gtest.h>

#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/branches/branch.hpp"
#include "planner/branches/named_configuration.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "sim/engine.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace flow_bound_test {

using test::Draw;

constexpr std::int64_t kWire = 100;

/// A schedule on equal stages of F = 10, B = 20 whose messages take kWire.
struct Case {
  Configuration configuration;
  std::vector<StagePlan> stages;
  CostTable costs;
  Order order;
  Wires wires;

  Case(const char* schedule, int ranks, int micro_batches, int chunks = 1) {
    configuration.schedule = &find_schedule(schedule);
    configuration.parallel.pipeline = ranks;
    configuration.parallel.micro_batches = micro_batches;
    configuration.parallel.chunks = chunks;
    order = make_order(schedule, {ranks, micro_batches, chunks, {}});
    StageCosts each{Nanoseconds(10), Nanoseconds(12), Nanoseconds(8), Nanoseconds(20),
                    Nanoseconds(3)};
    costs = CostTable::uniform(order.stages(), each, Nanoseconds(kWire));
    for (int s = 0; s < order.stages(); ++s)
      stages.push_back({s, s + 1, order.placement.rank_of(StageId(s), MicroBatchId(0))});
    for (int s = 0; s + 1 < order.stages(); ++s) {
      const auto cut = static_cast<std::size_t>(s);
      const bool is_inside = stages[cut].rank == stages[cut + 1].rank;
      wires.up.push_back(is_inside ? Wire{} : Wire{kWire, 0});
    }
    wires.down = wires.up;
  }

  std::int64_t bound(Sending sending = Sending::InTurn) const {
    return flow_bound(configuration, stages, costs.stages, {wires}, sending);
  }
  std::int64_t step(const CommPolicy& policy = {}) const {
    const Program program = lower(order, policy, {.optimizer = true});
    return sim::simulate(program, costs).timeline.makespan_ns;
  }
};

TEST(FlowBound, OneMicroBatchAtATimeTakesItsWayAgainAndAgain) {
  const Case naive("naive", 2, 4);
  EXPECT_EQ(naive.bound(), 4 * (10 + kWire + 30 + kWire + 20) + 3);
  EXPECT_EQ(naive.step(), naive.bound());
}

TEST(FlowBound, AWireThatMovesOneMessageAtATimeHoldsUpAllForwardsAndThenAllBackwards) {
  const Case gpipe("gpipe", 2, 4);
  EXPECT_EQ(gpipe.bound(), 10 + 4 * kWire + 10 + 20 + 4 * kWire + 20 + 3);
  EXPECT_EQ(gpipe.step(), gpipe.bound());
  // Messages that overlap are there after each other's senders.
  const CommPolicy ideal = comm_policy_preset("ideal");
  EXPECT_EQ(sending_under(ideal), Sending::Shared);
  EXPECT_EQ(gpipe.bound(Sending::Shared), 10 + kWire + 4 * (10 + 20) + kWire + 20 + 3);
  EXPECT_LE(gpipe.bound(Sending::Shared), gpipe.step(ideal));
}

TEST(FlowBound, ARankThatHoldsFewMicroBatchesWaitsForThem) {
  const Case one_of_two("1f1b", 3, 8);
  const std::int64_t way = 30 + 60 + 4 * kWire;
  // Rank 0 holds three: the seventh begins behind the sixth's and the third's ways.
  EXPECT_GE(one_of_two.bound(Sending::Shared), 3 * way + 3);
  EXPECT_LE(one_of_two.bound(Sending::Shared), one_of_two.step(comm_policy_preset("ideal")));
}

TEST(FlowBound, RanksWithRoomForOneMicroBatchHaveOneAtATime) {
  const Case naive("naive", 2, 4), gpipe("gpipe", 2, 4);
  const StageMemory each{.f = Bytes(70), .i = Bytes(-40), .w = Bytes(-30)};
  const auto bound = [&](int room) {
    return flow_bound(gpipe.configuration, gpipe.stages, gpipe.costs.stages, {gpipe.wires},
                      Sending::InTurn, {{Bytes(room), Bytes(room)}, {each, each}});
  };
  EXPECT_EQ(bound(4 * 70), gpipe.bound());
  // The area is a real number, and what rounding may have added is taken off.
  EXPECT_NEAR(static_cast<double>(bound(70)), static_cast<double>(naive.step()), 1);
}

TEST(FlowBound, OfASplitBackwardWhatIsLeftUntilItsWCountsForAsLong) {
  // One rank, F = 10, I = 12, W = 8: 22 times 70 and 8 times 30 bytes.
  Case one("zb-h1", 1, 4);
  const StageMemory memory{.f = Bytes(70), .i = Bytes(-40), .w = Bytes(-30)};
  const double area = 4 * (22.0 * 70 + 8 * 30);
  EXPECT_NEAR(
      static_cast<double>(flow_bound(one.configuration, one.stages, one.costs.stages, {one.wires},
                                     Sending::InTurn, {{Bytes(10)}, {memory}})),
      area / 10 + 3, 1);
}

TEST(FlowBound, AStageThatIsReducedLastHasTheOthersOfItsRankBeforeIt) {
  Case interleaved("interleaved", 2, 2, 2);
  const std::int64_t before = interleaved.bound();
  interleaved.costs.stages[0].reduce = Nanoseconds(40);
  EXPECT_EQ(interleaved.bound(), before + 40);
  // Stage 2 is on the same rank and reduced before it: its own reduction has to take longer than
  // what is left of the way.
  interleaved.costs.stages[2].reduce = Nanoseconds(100000);
  EXPECT_GT(interleaved.bound(), 100000 + 40);
}

TEST(FlowBound, NoScheduleEndsBeforeIt) {
  int close = 0, all = 0;
  for (const Schedule& schedule : schedules()) {
    for (const auto& [ranks, micro_batches] : {std::pair(2, 2), {3, 6}, {4, 8}, {4, 16}, {6, 3}}) {
      const int chunks = schedule.default_chunks;
      const ScheduleRequest request{ranks, micro_batches, chunks, {}};
      if (refusal_of(schedule, request) || schedule.layout == Layout::Replicas) continue;
      const Case it(std::string(schedule.name).c_str(), ranks, micro_batches, chunks);
      for (const CommPolicyPreset& preset : comm_policy_presets()) {
        const Program program = lower(it.order, preset.policy, {.optimizer = true});
        const sim::Result result = sim::simulate(program, it.costs);
        if (!result.finished) continue;
        const std::int64_t bound = it.bound(sending_under(preset.policy));
        EXPECT_LE(bound, result.timeline.makespan_ns)
            << schedule.name << " " << ranks << " " << micro_batches << " " << preset.name;
        close += 10 * bound >= 9 * result.timeline.makespan_ns ? 1 : 0;
        ++all;
      }
    }
  }
  EXPECT_GT(all, 500);
  EXPECT_GT(close, all / 10);
}

/// Few fast devices a node, slow ports between nodes, pipelines that do not fit them.
Job random_job(std::uint32_t seed) {
  Draw random(seed);
  Job job;
  const char* models[] = {"gpt-tiny", "mlp", "resnet-tiny"};
  job.model = model_preset(models[random.below(3)]);
  job.cluster = cluster_preset("dgx-a100", 8);
  job.cluster.nodes = random.one_of(2, 3, 4);
  job.cluster.devices_per_node = random.one_of(2, 3, 4);
  job.cluster.across.bytes_per_second /= random.one_of(1, 10, 100, 1000);
  job.cluster.across.sharing =
      random.one_of(Sharing::Fair, Sharing::Serial, Sharing::None, Sharing::MaxMin);
  if (job.cluster.across.sharing == Sharing::MaxMin) job.cluster.inside.sharing = Sharing::MaxMin;
  if (random.below(4) == 0) job.cluster.network_ports = 1;
  job.global_batch = random.one_of(6, 8, 12, 24);
  Strategy& strategy = job.strategy;
  if (random.coin())
    strategy.policy =
        comm_policy_presets()[random.below(static_cast<int>(comm_policy_presets().size()))].policy;
  const char* names[] = {"1f1b",  "interleaved", "zb-h1",  "gpipe", "naive",      "looped-bfs",
                         "v-min", "zbv",         "hanayo", "zb-1p", "eager-1f1b", "interleaved-zb"};
  for (int k = 0; k < 5; ++k) strategy.schedule_mode.emplace_back(names[random.below(12)]);
  if (random.below(4) == 0) {
    strategy.sharding_degree = 2;
    strategy.dp_degree = {"2"};
  }
  if (random.below(4) == 0) strategy.recompute = {"none", "full", "by_stage"};
  if (random.below(4) == 0) job.training.clip_grad_norm = 1;
  return job;
}

TEST(FlowBound, IsNeverAboveWhatIsSimulatedAndOftenAboveTheBusiestRank) {
  int compared = 0, above = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const Job job = random_job(seed);
    const auto costs = costs_of_job(job, nullptr, 4);
    for (const Candidate& row : test::searched(job, 100000, true).ranked) {
      SCOPED_TRACE(seed);
      test::expect_bounds_hold(*costs, row);
      const Configuration configuration{&find_schedule(row.schedule), row.parallel,
                                        row.partition == "even"};
      const auto stage_costs = chosen_stage_costs(*costs, row.parallel, row.stages);
      const std::int64_t bound =
          flow_bound(configuration, row.stages, stage_costs, costs->wires(row.parallel, row.stages),
                     costs->sending(*configuration.schedule));
      above += 10 * bound > 11 * step_bound(configuration, row.stages, stage_costs) ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_GT(compared, 1500);
  EXPECT_GT(above, compared / 2);
}

TEST(FlowBound, TheSearchWithItFindsWhatSimulatingEverythingFinds) {
  int quick_simulated = 0, all_simulated = 0;
  for (std::uint32_t seed = 100; seed < 150; ++seed) {
    const Job job = random_job(seed);
    const SearchResult quick = test::searched(job, 4, false), all = test::searched(job, 4, true);
    SCOPED_TRACE(seed);
    test::expect_same_rows(quick, all);
    quick_simulated += quick.evaluated;
    all_simulated += all.evaluated;
  }
  EXPECT_LT(3 * quick_simulated, all_simulated);
}

}  // namespace flow_bound_test
}  // namespace pipewright::planner
