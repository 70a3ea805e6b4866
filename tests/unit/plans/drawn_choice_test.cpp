// Which of the first rows takes least on average, by drawn steps.
#include "planner/search/drawn_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"

namespace pipewright::planner {
namespace drawn_choice_test {

constexpr int kCores = 2;

/// Six equal layers whose measurements are typically 100,000 ns and go down and up by `spread`
/// percent.
Profile profile_with(std::int64_t spread) {
  Profile profile;
  profile.model_name = "gpt-tiny";
  profile.cluster = cluster_preset("local-cpu", 2);
  profile.clock = ProfileClock::Cpu;
  profile.transfer_bytes_per_second = 1e9;
  ProfileSize size;
  size.micro_batch_size = 1;
  const std::int64_t t = 100'000;
  const Distribution all = distribution_of({t - t * spread / 100, t, t + t * spread / 100});
  for (int layer = 0; layer < 6; ++layer) {
    size.layers.push_back({.f = Nanoseconds(t), .i = Nanoseconds(t), .w = Nanoseconds(t)});
    size.spreads.push_back({all, all, all, {}});
  }
  profile.sizes = {size};
  return profile;
}

/// One rank in two replicas, or two ranks: 16 micro-batches of one rank are 28.8 ms.
Job two_devices() {
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("local-cpu", 2);
  job.global_batch = 32;
  job.strategy.micro_batch_size = {"1"};
  job.strategy.schedule_mode = {"naive", "zb-h1"};
  return job;
}

SearchResult found(const Job& job, const Profile& profile) {
  SearchOptions options;
  options.cores = kCores;
  return search(job, &profile, options);
}

/// A pipeline waits at every message for whoever takes longer, replicas once a step: where times
/// spread, replicas take less, though their sum of gradients costs a little more than the pipeline
/// takes to fill.
TEST(DrawnChoice, ReplicasStandVarianceThatAPipelineDoesNot) {
  const Job job = two_devices();
  for (const std::int64_t spread : {0, 90}) {
    const Profile profile = profile_with(spread);
    SearchResult result = found(job, profile);
    ASSERT_EQ(result.ranked.front().parallel.pipeline, 2);
    const DrawnChoice choice = choose_by_draws(job, profile, kCores, 50, result);
    const DrawnRow& best = choice.rows[choice.best];
    EXPECT_EQ(result.ranked[best.row].parallel.pipeline, spread == 0 ? 2 : 1);
    EXPECT_EQ(result.best->mesh.size("pp"), spread == 0 ? 2 : 1);
    EXPECT_EQ(result.drawn_best, best.steps);
    EXPECT_THAT(result.best->tuner.reasons,
                testing::Contains(testing::HasSubstr("drawn 50 times")));
    const double first = static_cast<double>(result.ranked.front().step.value);
    for (const DrawnRow& row : choice.rows) {
      EXPECT_GE(row.steps.mean, best.steps.mean);
      EXPECT_LE(static_cast<double>(result.ranked[row.row].step.value), first * (1 + kDrawnWithin));
      if (spread == 0) {
        EXPECT_EQ(row.steps.mean, result.ranked[row.row].step);
      }
    }
    EXPECT_LE(choice.rows.size(), kMostDrawnRows);
  }
}

TEST(DrawnChoice, TheSameDrawsGiveTheSameChoice) {
  const Job job = two_devices();
  const Profile profile = profile_with(50);
  SearchResult once = found(job, profile), again = found(job, profile);
  const DrawnChoice a = choose_by_draws(job, profile, kCores, 20, once);
  const DrawnChoice b = choose_by_draws(job, profile, kCores, 20, again);
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) EXPECT_EQ(a.rows[i].steps, b.rows[i].steps);
  EXPECT_EQ(to_text(to_json(*once.best)), to_text(to_json(*again.best)));
}

TEST(DrawnChoice, NeedsASpread) {
  const Job job = two_devices();
  Profile profile = profile_with(0);
  profile.sizes.front().spreads.clear();
  SearchResult result = found(job, profile);
  EXPECT_THROW(choose_by_draws(job, profile, kCores, 5, result), InputError);
}

}  // namespace drawn_choice_test
}  // namespace pipewright::planner
