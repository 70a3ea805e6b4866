// Measuring this machine: every number is there and makes sense. How large they are is a benchmark.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>

#include "core/base/error.hpp"
#include "exec/profile/profile.hpp"
#include "exec/profile/transfer.hpp"

namespace pipewright::tests {
namespace measure_profile_test {

TEST(MeasureProfile, HasEveryLayerOfEverySize) {
  const Model model = model_preset("gpt-tiny");
  const Profile profile =
      exec::measure_profile(model, cluster_preset("local-cpu", 2),
                            {.micro_batch_sizes = {1, 2}, .ranks = 2, .budget_ns = 200'000'000});
  EXPECT_EQ(profile.model_name, model.name);
  EXPECT_EQ(profile.ranks_measured, 2);
  EXPECT_GE(profile.repeats, 3);
  ASSERT_EQ(profile.sizes.size(), 2U);
  for (const ProfileSize& size : profile.sizes) {
    ASSERT_EQ(size.layers.size(), model.layers.size());
    for (const LayerTimes& layer : size.layers) EXPECT_GT(layer.f.value, 0);
    EXPECT_GT(size.loss.f.value, 0);
    EXPECT_GT(size.loss.i.value, 0);
  }
  EXPECT_EQ(profile.sizes[1].micro_batch_size, 2);
  EXPECT_GT(profile.transfer_latency.value, 0);
  EXPECT_GE(profile.transfer_bytes_per_second, 1);  // or it could not be read back
  EXPECT_GT(profile.action_overhead.value, 0);
}

TEST(MeasureProfile, KnowsHowItsMeasurementsAreSpread) {
  const Model model = model_preset("mlp");
  const Profile profile = exec::measure_profile(model, cluster_preset("local-cpu", 2),
                                                {.micro_batch_sizes = {2},
                                                 .ranks = 2,
                                                 .budget_ns = 100'000'000,
                                                 .clock = exec::local::ClockKind::Virtual});
  EXPECT_EQ(profile.clock, ProfileClock::Cpu);
  ASSERT_EQ(profile.sizes[0].spreads.size(), model.layers.size());
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const LayerSpread& spread = profile.sizes[0].spreads[l];
    for (const Distribution* kind : {&spread.f, &spread.i, &spread.w}) {
      EXPECT_GE(kind->count, 12);
      EXPECT_GT(kind->quantiles.front().value, 0);
      EXPECT_GE(kind->mean, kind->quantiles.front());
      EXPECT_LE(kind->mean, kind->quantiles.back());
    }
    // What messages and the loss cost is in the spread and not in the layer.
    EXPECT_LE(profile.sizes[0].layers[l].f, typical(spread.f, profile.clock));
    EXPECT_LE(profile.sizes[0].layers[l].i, typical(spread.i, profile.clock));
    EXPECT_GE(spread.opt.count, 3);
  }
}

TEST(MeasureProfile, MeasuresWhatOneOfTheRanksComputesThatDivideLayers) {
  const Model model = model_preset("mixtral-tiny");
  const Profile profile = exec::measure_profile(model, cluster_preset("local-cpu", 4),
                                                {.micro_batch_sizes = {1, 2},
                                                 .ranks = 4,
                                                 .divisions = {{2, 1}, {1, 2}},
                                                 .budget_ns = 300'000'000,
                                                 .clock = exec::local::ClockKind::Virtual});
  EXPECT_EQ(profile.ranks_measured, 4);
  for (const StageDivision& ranks : {StageDivision{2, 1}, {1, 2}}) {
    const DividedProfile* const divided = find_divided(profile, ranks);
    ASSERT_NE(divided, nullptr);
    EXPECT_EQ(divided->ranks_measured, 4);  // two of two devices
    ASSERT_EQ(divided->sizes.size(), 2U);
    for (const ProfileSize& size : divided->sizes) {
      ASSERT_EQ(size.layers.size(), model.layers.size());
      EXPECT_EQ(size.loss.f.value, 0);
      for (std::size_t l = 0; l < size.layers.size(); ++l) {
        EXPECT_GT(size.layers[l].f.value, 0);
        EXPECT_GT(size.layers[l].opt.value, 0);
        // Both devices' measurements of at least three steps of four micro-batches.
        EXPECT_GE(size.spreads[l].f.count, 2 * 3 * 4);
        EXPECT_EQ(size.spreads[l].w.count, size.spreads[l].f.count);
      }
    }
  }
}

/// Each trains all layers: twice as many measurements of each in a step.
TEST(MeasureProfile, MeasuresAsManyReplicasAsAskedFor) {
  const Model model = model_preset("llama-tiny");
  const Profile profile = exec::measure_profile(model, cluster_preset("local-cpu", 8),
                                                {.micro_batch_sizes = {1},
                                                 .ranks = 8,
                                                 .replicas = {2},
                                                 .divisions = {{2, 1}},
                                                 .budget_ns = 100'000'000,
                                                 .clock = exec::local::ClockKind::Virtual});
  EXPECT_EQ(profile.ranks_measured, 8);  // two pipelines of four
  ASSERT_EQ(profile.sizes.front().layers.size(), model.layers.size());
  EXPECT_GT(profile.sizes.front().loss.f.value, 0);
  EXPECT_GE(profile.sizes.front().spreads.front().f.count, 2 * 3 * 8);
  const DividedProfile* const divided = find_divided(profile, {2, 1});
  ASSERT_NE(divided, nullptr);
  EXPECT_EQ(divided->ranks_measured, 8);  // two pipelines of two ranks of two devices
  EXPECT_GE(divided->sizes.front().spreads.front().f.count, 2 * 2 * 3 * 4);
}

/// Its vocabulary has 256 bytes, whose rows go to experts as the text has them.
TEST(MeasureProfile, TrainsOnTheDataThatItIsGiven) {
  const Model model = model_preset("mixtral-tiny");
  const auto measure = [&](const std::string& text) {
    const std::string file = testing::TempDir() + "measured_text";
    std::ofstream(file) << text;
    return exec::measure_profile(
        model, cluster_preset("local-cpu", 2),
        {.ranks = 2, .budget_ns = 50'000'000, .data = {.data = file, .labels = "", .targets = ""}});
  };
  EXPECT_EQ(measure(std::string(4000, 'a')).sizes.front().layers.size(), model.layers.size());
  EXPECT_THROW(measure("short"), InputError);
}

/// Those of more replicas stand beside the others, whole layers too, and a plan takes its own.
TEST(MeasureProfile, KeepsTheReplicasThatWereMeasuredApart) {
  const Model model = model_preset("llama-tiny");
  const Profile profile = exec::measure_profile(model, cluster_preset("local-cpu", 4),
                                                {.micro_batch_sizes = {1},
                                                 .ranks = 4,
                                                 .replicas = {1, 2},
                                                 .divisions = {{2, 1}},
                                                 .budget_ns = 100'000'000,
                                                 .clock = exec::local::ClockKind::Virtual});
  ASSERT_EQ(profile.divided.size(), 3U);
  EXPECT_EQ(find_divided(profile, {}), nullptr);
  EXPECT_EQ(find_divided(profile, {}, 2), find_divided(profile, {}, 8));
  EXPECT_EQ(find_divided(profile, {}, 2)->replicas, 2);
  EXPECT_EQ(find_divided(profile, {2, 1})->replicas, 1);
  EXPECT_EQ(find_divided(profile, {2, 1}, 3)->replicas, 2);
  const Json json = to_json(profile);
  const Profile again = read_profile(JsonCursor(json, "profile.json"));
  EXPECT_EQ(to_json(again), json);
  EXPECT_EQ(find_divided(again, {}, 2)->sizes.front().layers[1].f,
            find_divided(profile, {}, 2)->sizes.front().layers[1].f);
}

TEST(MeasureProfile, RefusesADivisionThatTheLayersDoNotHave) {
  EXPECT_THROW(exec::measure_profile(model_preset("llama-tiny"), cluster_preset("local-cpu", 2),
                                     {.divisions = {{3, 1}}}),
               InputError);
}

TEST(MeasureProfile, MoreRanksThanLayersMeasureWithOneLayerEach) {
  const Profile profile = exec::measure_profile(model_preset("mlp"), cluster_preset("local-cpu", 8),
                                                {.ranks = 8, .budget_ns = 50'000'000});
  EXPECT_EQ(profile.ranks_measured, 3);
}

TEST(MeasureProfile, MeasuresImagesAndExactNumericsToo) {
  const Model model = model_preset("resnet-tiny");
  const Profile profile = exec::measure_profile(model, cluster_preset("local-cpu", 2),
                                                {.micro_batch_sizes = {2},
                                                 .ranks = 2,
                                                 .budget_ns = 50'000'000,
                                                 .numerics = exec::Numerics::Exact});
  ASSERT_EQ(profile.sizes[0].layers.size(), model.layers.size());
  for (const LayerTimes& layer : profile.sizes[0].layers) EXPECT_GT(layer.i.value, 0);
}

TEST(MeasureProfile, CanBeInterrupted) {
  const std::atomic<bool> interrupted{true};
  EXPECT_THROW(exec::measure_profile(model_preset("mlp"), cluster_preset("local-cpu", 1),
                                     {.interrupted = &interrupted}),
               RunError);
}

}  // namespace measure_profile_test
}  // namespace pipewright::tests
