// Durations drawn from how measurements are spread.
#include "planner/costs/drawn_durations.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/schedules/registry.hpp"
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

TEST(DrawnDurations, NeedAProfileWithSpreadsOfThePlansLayers) {
  Setting setting("1f1b", 300);
  setting.profile.sizes[0].spreads.pop_back();
  EXPECT_THROW(setting.durations(), InputError);
  setting.profile.sizes[0].spreads.clear();
  EXPECT_THROW(setting.durations(), InputError);
}

}  // namespace drawn_durations_test
}  // namespace pipewright::planner
