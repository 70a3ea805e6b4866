// Durations drawn from how measurements are spread.
#include "planner/costs/drawn_durations.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "core/program/lower.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/drawn_steps.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/search/search.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace drawn_durations_test {

const std::vector<StagePlan> kStages = {{0, 2, RankId(0)}, {2, 3, RankId(1)}};

/// Every measurement of layer l lies between 1000 (l + 1) - width and 1000 (l + 1) + width.
Profile profile_with(std::int64_t width) {
  Profile profile;
  profile.model_name = "mlp";
  profile.cluster = cluster_preset("local-cpu");
  profile.clock = ProfileClock::Cpu;
  profile.transfer_bytes_per_second = 1e9;
  ProfileSize size;
  size.micro_batch_size = 2;
  for (const std::int64_t l : {1, 2, 3}) {
    const Nanoseconds t(1000 * l);
    size.layers.push_back({t, t, t, t});
    const Distribution spread = distribution_of({t.value - width, t.value, t.value + width});
    size.spreads.push_back({spread, spread, spread, spread});
  }
  profile.sizes = {size};
  return profile;
}

struct Setting {
  explicit Setting(const char* schedule, std::int64_t width)
      : profile(profile_with(width)),
        program(lower(
            make_order(schedule, {.ranks = 2, .micro_batches = 6, .chunks = 1, .parameters = {}}),
            CommPolicy{}, {.optimizer = true})),
        costs(CostModel(model_preset("mlp"), cluster_preset("local-cpu", 2), &profile)
                  .table(kStages, 2, 2, "adamw")) {}
  DrawnDurations durations() const { return {program, costs, kStages, profile, 2}; }

  Profile profile;
  Program program;
  CostTable costs;
};

TEST(DrawnDurations, OfMeasurementsThatAllAgreeAreTheCosts) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const Setting setting(schedule, 0);
    const auto drawn = setting.durations().draw(7);
    const sim::Result expected = sim::simulate(setting.program, setting.costs);
    const sim::Result found = sim::simulate(setting.program, setting.costs, {.compute_ns = drawn});
    EXPECT_EQ(found.timeline.start, expected.timeline.start) << schedule;
    EXPECT_EQ(found.timeline.end, expected.timeline.end) << schedule;
  }
}

TEST(DrawnDurations, StayWithinTheMeasurementsAndKeepTheirMean) {
  const Setting setting("1f1b", 300);
  const DrawnDurations durations = setting.durations();
  double sum = 0, typical = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto drawn = durations.draw(seed);
    for (InstructionId id = 0; id < setting.program.code.size(); ++id) {
      if (is_transfer(setting.program.code[id].kind)) {
        EXPECT_EQ(drawn[id], 0);
        continue;
      }
      const auto cost = setting.costs.duration(setting.program, id).value;
      // Of two layers with 1000 and 2000 ns, 300 each: a fifth of 3000.
      EXPECT_GE(drawn[id], cost - cost / 5 - 1);
      EXPECT_LE(drawn[id], cost + cost / 5 + 1);
      sum += static_cast<double>(drawn[id]);
      typical += static_cast<double>(cost);
    }
  }
  EXPECT_NEAR(sum / typical, 1, 0.005);
  EXPECT_EQ(durations.draw(3), durations.draw(3));
  EXPECT_NE(durations.draw(3), durations.draw(4));
}

/// Every layer's B was measured at its typical value alone, so it varies no more than that.
TEST(DrawnDurations, OfABackwardAreThoseThatWereMeasuredOfIt) {
  Setting setting("1f1b", 300);
  for (LayerSpread& spread : setting.profile.sizes[0].spreads)
    spread.b = distribution_of({spread.i.median().value});
  const auto drawn = setting.durations().draw(5);
  int backwards = 0;
  for (InstructionId id = 0; id < setting.program.code.size(); ++id) {
    if (setting.program.code[id].kind != ActionKind::B) continue;
    EXPECT_EQ(drawn[id], setting.costs.duration(setting.program, id).value);
    ++backwards;
  }
  EXPECT_EQ(backwards, 12);
}

/// Two replicas of two pipeline ranks of two devices, whose F is sums between three computations.
TEST(DrawnDurations, OfDevicesThatWaitForOneAnotherAreTheSame) {
  Order order = replicate(
      make_order("1f1b", {.ranks = 2, .micro_batches = 4, .chunks = 1, .parameters = {}}), 2);
  const Part computes{.call = {.kind = ActionKind::Part}, .weight = 1};
  const Part sums{.call = {.kind = ActionKind::AllReduce, .group = std::string(kTensorAxis)}};
  for (const int stage : {0, 1})
    order.parts.push_back(
        {StageId(stage), ActionKind::F, {computes, sums, computes, sums, computes}});
  order.mesh = {{std::string(kTensorAxis), 2}};
  order = written_out(order);
  const Program program = lower(order, CommPolicy{}, {.optimizer = true});
  ASSERT_EQ(program.ranks(), 8);
  Profile profile = profile_with(0);
  const StageDivision division{.tensor = 2};
  profile.divided = {{.ranks = division, .ranks_measured = 2, .sizes = profile_with(300).sizes}};
  CostTable costs = CostTable::uniform(
      2, {Nanoseconds(3000), Nanoseconds(3000), Nanoseconds(3000), Nanoseconds(6000)});
  costs.ranks_of_entry = 2;
  const auto drawn = DrawnDurations(program, costs, kStages, profile, 2, division).draw(11);
  const auto of_rank = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return std::vector<std::int64_t>(drawn.begin() + program.rank_begin[at],
                                     drawn.begin() + program.rank_begin[at + 1]);
  };
  for (int rank = 0; rank < 8; rank += 2) EXPECT_EQ(of_rank(rank), of_rank(rank + 1));
  EXPECT_NE(of_rank(0), of_rank(4));  // the same pipeline rank of another replica
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.code[id].kind != ActionKind::Part) continue;
    const Action& action = *program.action_of_part(id);
    for (InstructionId next = id; !program.ends_parts(next); ++next) {
      if (program.code[next].kind != ActionKind::Part) continue;
      ASSERT_EQ(*program.action_of_part(next), action);
      EXPECT_EQ(drawn[next], drawn[id]) << "parts of one action vary together";
    }
  }
  // What was measured of whole layers says nothing of them.
  EXPECT_EQ(DrawnDurations(program, costs, kStages, profile, 2).draw(11),
            DrawnDurations(program, costs, kStages, profile, 2).draw(12));
}

TEST(DrawnDurations, NeedAProfileWithSpreadsOfThePlansLayers) {
  Setting setting("1f1b", 300);
  setting.profile.sizes[0].spreads.pop_back();
  EXPECT_THROW(setting.durations(), InputError);
  setting.profile.sizes[0].spreads.clear();
  EXPECT_THROW(setting.durations(), InputError);
}

/// A job of ranks that divide layers and replicas, and what its layers were measured to take.
struct DividedJob {
  explicit DividedJob(std::int64_t width) {
    job.model = model_preset("llama-tiny");
    job.cluster = cluster_preset("local-cpu", 8);
    job.global_batch = 8;
    job.strategy.mp_degree = job.strategy.dp_degree = job.strategy.pp_degree = {"2"};
    job.strategy.micro_batch_size = {"1"};
    job.strategy.schedule_mode = {"1f1b"};
    profile = profile_with(width);
    profile.model_name = job.model.name;
    ProfileSize& size = profile.sizes.front();
    size.micro_batch_size = 1;
    size.layers.resize(job.model.layers.size(), size.layers.back());
    size.spreads.resize(job.model.layers.size(), size.spreads.back());
    profile.divided = {{.ranks = {.tensor = 2}, .ranks_measured = 8, .sizes = {size}}};
  }
  Job job;
  Profile profile;
};

Distribution drawn_steps_of(const Plan& plan, const Profile& profile, int samples,
                            std::uint64_t seed = 1) {
  return drawn_steps(plan, program_of_run(plan), profile, samples, seed);
}

TEST(DrawnSteps, AreThePlansWhereMeasurementsAllAgree) {
  const DividedJob divided(0);
  const SearchResult found = search(divided.job, &divided.profile);
  ASSERT_TRUE(found.best.has_value());
  ASSERT_FALSE(found.best->parts.empty());
  const Distribution steps = drawn_steps_of(*found.best, divided.profile, 3);
  EXPECT_EQ(steps.count, 3);
  EXPECT_EQ(steps.quantiles.front(), found.best->predicted.step);
  EXPECT_EQ(steps.quantiles.back(), found.best->predicted.step);
}

/// Such as one whose transfers are exchanged as Megatron-LM's loop does it.
TEST(DrawnSteps, AreOfTheProgramThatIsGiven) {
  const Setting setting("1f1b", 0);
  Job job;
  job.model = model_preset("mlp");
  job.cluster = cluster_preset("local-cpu", 2);
  job.global_batch = 12;
  job.strategy.pp_degree = job.strategy.micro_batch_size = {"2"};
  job.strategy.schedule_mode = {"1f1b"};
  const SearchResult found = search(job, &setting.profile);
  ASSERT_TRUE(found.best.has_value());
  Plan other = *found.best;
  other.policy = comm_policy_preset("nccl-one-stream");
  const Program run = program_of_run(other);
  const Distribution steps = drawn_steps(*found.best, run, setting.profile, 2);
  EXPECT_EQ(steps.median().value, sim::simulate(run, other.costs).timeline.makespan_ns);
  EXPECT_NE(steps.median(), found.best->predicted.step);
}

/// Ranks wait for those that take longer, so that a step of varying actions is longer.
TEST(DrawnSteps, AreLongerThanThePlanOfMeasurementsThatVary) {
  const DividedJob divided(700);
  SearchResult found = search(divided.job, &divided.profile);
  ASSERT_TRUE(found.best.has_value());
  const Distribution steps = drawn_steps_of(*found.best, divided.profile, 41, 5);
  EXPECT_GT(steps.median(), found.best->predicted.step);
  EXPECT_EQ(drawn_steps_of(*found.best, divided.profile, 41, 5), steps);
  EXPECT_FALSE(found.drawn_best.has_value());
  fill_intervals(divided.job, &divided.profile, 0, found);
  ASSERT_TRUE(found.drawn_best.has_value());
  EXPECT_EQ(*found.drawn_best, drawn_steps_of(*found.best, divided.profile, 41));
  // A profile that knows no spread gives no interval, and says so where it is asked for one.
  Profile bare = divided.profile;
  bare.divided.front().sizes.front().spreads.clear();
  found.drawn_best.reset();
  fill_intervals(divided.job, &bare, 0, found);
  EXPECT_FALSE(found.drawn_best.has_value());
  EXPECT_THROW(drawn_steps_of(*found.best, bare, 2), InputError);
}

}  // namespace drawn_durations_test
}  // namespace pipewright::planner
