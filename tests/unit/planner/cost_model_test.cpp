#include "planner/costs/cost_model.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.hpp"
#include "planner/configurations/requested_divisions.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {
namespace cost_model_test {

/// Two sizes of the mlp preset's three layers; every number is its own, so that a mix-up shows.
Profile mlp_profile() {
  Profile profile;
  profile.model_name = "mlp";
  profile.cluster = cluster_preset("local-cpu");
  profile.ranks_measured = 2;
  profile.repeats = 5;
  profile.transfer_latency = Nanoseconds(500);
  profile.transfer_bytes_per_second = 1e9;
  profile.action_overhead = Nanoseconds(7);
  for (const int size : {2, 4}) {
    ProfileSize entry;
    entry.micro_batch_size = size;
    for (int l = 1; l <= 3; ++l) {
      entry.layers.push_back({Nanoseconds(1000 * l * size), Nanoseconds(2000 * l * size),
                              Nanoseconds(3000 * l * size), Nanoseconds(100 * l)});
    }
    entry.loss.f = Nanoseconds(10 * size);
    entry.loss.i = Nanoseconds(20 * size);
    profile.sizes.push_back(entry);
  }
  return profile;
}

const std::vector<StagePlan> kStages = {{0, 2, RankId(0)}, {2, 3, RankId(1)}};

TEST(CostModel, SumsTheLayersOfAProfile) {
  const Profile profile = mlp_profile();
  const CostModel model(model_preset("mlp"), cluster_preset("local-cpu"), &profile, 2);
  const CostTable costs = model.table(kStages, 2, 4, "sgd");
  // Layers 1 and 2: (1 + 2) * 4000 and the action's own 7.
  EXPECT_EQ(costs.stages[0].f, Nanoseconds(12000 + 7));
  EXPECT_EQ(costs.stages[0].i, Nanoseconds(24000 + 7));
  EXPECT_EQ(costs.stages[0].w, Nanoseconds(36000 + 7));
  EXPECT_EQ(costs.stages[0].b, Nanoseconds(60000 + 7));
  EXPECT_EQ(costs.stages[0].opt, Nanoseconds(300));
  // Layer 3 and the loss.
  EXPECT_EQ(costs.stages[1].f, Nanoseconds(12000 + 40 + 7));
  EXPECT_EQ(costs.stages[1].i, Nanoseconds(24000 + 80 + 7));
  EXPECT_EQ(costs.every_route.latency, Nanoseconds(500));
  // 4 samples of 4096 floats cross the cut after relu.
  EXPECT_EQ(costs.activation_bytes, std::vector<Bytes>{Bytes(4 * 4096 * 4)});
  EXPECT_EQ(costs.gradient_bytes, costs.activation_bytes);
  EXPECT_EQ(costs.memory.size(), 2u);
}

TEST(CostModel, ARanksStagesShareWhatTheRuntimeTakesForAStep) {
  Profile profile = mlp_profile();
  profile.step_overhead = Nanoseconds(40);
  const CostModel model(model_preset("mlp"), cluster_preset("local-cpu"), &profile, 2);
  const std::vector<StagePlan> stages = {{0, 1, RankId(0)}, {1, 2, RankId(1)}, {2, 3, RankId(0)}};
  const CostTable costs = model.table(stages, 2, 4, "sgd");
  EXPECT_EQ(costs.stages[0].opt, Nanoseconds(100 + 20));
  EXPECT_EQ(costs.stages[1].opt, Nanoseconds(200 + 40));
  EXPECT_EQ(costs.stages[2].opt, Nanoseconds(300 + 20));
}

TEST(CostModel, InterpolatesBetweenMeasuredSizesAndRefusesOthers) {
  const Profile profile = mlp_profile();
  const CostModel model(model_preset("mlp"), cluster_preset("local-cpu"), &profile, 2);
  EXPECT_FALSE(model.refusal(3));
  EXPECT_EQ(model.layer_times(3)[0].f, Nanoseconds(3000));
  EXPECT_EQ(model.layer_times(3)[2].f, Nanoseconds(9000 + 30));
  EXPECT_TRUE(model.refusal(1));
  EXPECT_TRUE(model.refusal(5));
  EXPECT_NE(model.refusal(8)->find("2 to 4"), std::string::npos);
}

/// What pipelines side by side were measured to take, the last layer with the loss.
DividedProfile beside_replicas(const Profile& profile, int replicas, int times) {
  std::vector<ProfileSize> sizes = profile.sizes;
  for (ProfileSize& size : sizes) {
    size.loss = {};
    for (LayerTimes& layer : size.layers) layer.f.value *= times;
  }
  return {.ranks = {}, .replicas = replicas, .ranks_measured = 2, .sizes = sizes};
}

TEST(CostModel, TakesTheMostReplicasThatAreNoMoreThanItsOwn) {
  Profile profile = mlp_profile();
  profile.divided = {beside_replicas(profile, 4, 5), beside_replicas(profile, 2, 3)};
  const auto first_layer = [&](int replicas) {
    return CostModel(model_preset("mlp"), cluster_preset("local-cpu"), &profile, 2, {}, {},
                     replicas)
        .layer_times(2)[0]
        .f.value;
  };
  EXPECT_EQ(first_layer(1), 2000);
  EXPECT_EQ(first_layer(2), 3 * 2000);
  EXPECT_EQ(first_layer(3), 3 * 2000);
  EXPECT_EQ(first_layer(8), 5 * 2000);
}

/// Of the same work, so the row with replicas is behind.
TEST(CostModel, ASearchPricesReplicasAsTheyWereMeasured) {
  Job job;
  job.model = model_preset("mlp");
  job.cluster = cluster_preset("local-cpu", 2);
  job.global_batch = 8;
  job.strategy.dp_degree = {"1", "2"};
  job.strategy.pp_degree = {"1"};
  job.strategy.micro_batch_size = {"4"};
  job.strategy.schedule_mode = {"naive"};
  EXPECT_EQ(replicas_to_measure(job), (std::vector<int>{1, 2}));
  Profile profile = mlp_profile();
  const auto step_of = [&](int replicas) {
    for (const Candidate& row : search(job, &profile, {.cores = 2}).ranked)
      if (row.parallel.data == replicas) return row.step.value;
    return std::int64_t{0};
  };
  const std::int64_t one = step_of(1), two = step_of(2);
  ASSERT_GT(two, 0);
  profile.divided = {beside_replicas(profile, 2, 3)};
  EXPECT_EQ(step_of(1), one);
  EXPECT_EQ(step_of(2), two + 2 * (4000 + 8000 + 12000) - 40 - 80);  // without the loss apart
  job.strategy.dp_degree = {"4"};
  EXPECT_EQ(replicas_to_measure(job), std::vector<int>{4});
  job.strategy.dp_degree = {"1"};
  EXPECT_EQ(replicas_to_measure(job), std::vector<int>{1});
}

/// The profile was taken with 2 ranks at once on 2 cores: 2 ranks cost what was measured, 4 ranks
/// twice as much. On 1 core the profile already holds a factor of 2.
TEST(CostModel, RanksShareTheCoresOfThisMachine) {
  const Profile profile = mlp_profile();
  const Model mlp = model_preset("mlp");
  const Cluster cluster = cluster_preset("local-cpu");
  EXPECT_EQ(CostModel(mlp, cluster, &profile, 2).contention(2), 1.0);
  EXPECT_EQ(CostModel(mlp, cluster, &profile, 2).contention(4), 2.0);
  EXPECT_EQ(CostModel(mlp, cluster, &profile, 1).contention(2), 1.0);
  EXPECT_EQ(CostModel(mlp, cluster, &profile, 1).contention(4), 2.0);
  EXPECT_EQ(CostModel(mlp, cluster, nullptr, 1).contention(4), 4.0);
  EXPECT_EQ(CostModel(mlp, cluster_preset("dgx-a100"), nullptr, 1).contention(8), 1.0);
}

TEST(CostModel, AProfileInCpuTimeGivesEachRankACoreOfItsOwn) {
  Profile profile = mlp_profile();
  profile.clock = ProfileClock::Cpu;
  const CostModel model(model_preset("mlp"), cluster_preset("local-cpu"), &profile, 2);
  EXPECT_EQ(model.contention(8), 1.0);
}

/// The cut behind layer 0 carries 2 samples of 4096 floats, out of stage 0 and into stage 1.
TEST(CostModel, MessagesCostBothStagesAtTheirCut) {
  Profile profile = mlp_profile();
  const Model mlp = model_preset("mlp");
  const Cluster cluster = cluster_preset("local-cpu");
  const std::vector<StagePlan> stages = {{0, 1, RankId(0)}, {1, 3, RankId(1)}};
  const auto without = CostModel(mlp, cluster, &profile, 2).stage_costs(stages, 2, 2, "adamw");
  profile.sizes[0].f_ns_per_message_byte = 0.5;
  profile.sizes[0].i_ns_per_message_byte = 0.25;
  const auto with = CostModel(mlp, cluster, &profile, 2).stage_costs(stages, 2, 2, "adamw");
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(with[s].f - without[s].f, Nanoseconds(2 * 4096 * 4 / 2)) << s;
    EXPECT_EQ(with[s].i - without[s].i, Nanoseconds(2 * 4096 * 4 / 4)) << s;
    EXPECT_EQ(with[s].b - without[s].b, Nanoseconds(2 * 4096 * 4 / 4)) << s;
    EXPECT_EQ(with[s].w, without[s].w) << s;
  }
}

TEST(CostModel, ABackwardTakesWhatWasMeasuredOfIt) {
  Profile profile = mlp_profile();
  profile.sizes[0].layers[1].saved_by_b = Nanoseconds(600);
  profile.sizes[1].layers[1].saved_by_b = Nanoseconds(1000);
  const Model mlp = model_preset("mlp");
  const Cluster cluster = cluster_preset("local-cpu");
  const auto costs = [&](int size, const RecomputeSpec& recompute = {}) {
    return CostModel(mlp, cluster, &profile, 2, recompute).stage_costs(kStages, 2, size, "sgd")[0];
  };
  EXPECT_EQ(costs(4).i, Nanoseconds(24000 + 7));
  EXPECT_EQ(costs(4).w, Nanoseconds(36000 + 7));
  EXPECT_EQ(costs(4).b, Nanoseconds(60000 - 1000 + 7));
  EXPECT_EQ(costs(3).b, Nanoseconds(45000 - 800 + 7));
  // A B computes the forward again, too.
  EXPECT_EQ(costs(4, {RecomputeSpec::Kind::Full}).b, Nanoseconds(60000 + 12000 - 1000 + 7));
}

/// Stages 0 and 1 are on the same rank, so one of stage 1's messages is a transfer.
TEST(CostModel, HandingOverATransferCostsEachOfItsEnds) {
  Profile profile = mlp_profile();
  const Model mlp = model_preset("mlp");
  const Cluster cluster = cluster_preset("local-cpu");
  const std::vector<StagePlan> stages = {{0, 1, RankId(0)}, {1, 2, RankId(0)}, {2, 3, RankId(1)}};
  const std::vector<StagePlan> apart = {{0, 1, RankId(0)}, {1, 2, RankId(1)}, {2, 3, RankId(0)}};
  const auto more = [&](const std::vector<StagePlan>& cut) {
    profile.transfer_issue = {};
    const auto without = CostModel(mlp, cluster, &profile, 2).stage_costs(cut, 2, 2, "adamw");
    profile.transfer_issue = Nanoseconds(11);
    const auto with = CostModel(mlp, cluster, &profile, 2).stage_costs(cut, 2, 2, "adamw");
    std::vector<std::int64_t> of_f;
    for (std::size_t s = 0; s < cut.size(); ++s) {
      of_f.push_back((with[s].f - without[s].f).value);
      EXPECT_EQ((with[s].i - without[s].i).value, of_f.back()) << s;
      EXPECT_EQ((with[s].b - without[s].b).value, of_f.back()) << s;
      EXPECT_EQ(with[s].w, without[s].w) << s;
    }
    return of_f;
  };
  EXPECT_EQ(more(stages), (std::vector<std::int64_t>{0, 11, 11}));
  EXPECT_EQ(more(apart), (std::vector<std::int64_t>{11, 22, 11}));
}

/// 2 samples through 1024 -> 4096: 2 * 2 * 1024 * 4096 + 2 * 4096 operations at 0.5 of 312e12 a
/// second.
TEST(CostModel, DividedLayersTakeWhatWasMeasuredOfThem) {
  const Model gpt = model_preset("gpt-tiny");
  Profile profile = mlp_profile();
  profile.model_name = gpt.name;
  for (ProfileSize& size : profile.sizes) size.layers.resize(gpt.layers.size(), size.layers[0]);
  const std::vector<StagePlan> stages = {{0, 6, RankId(0)}};
  const auto table = [&] {
    const CostModel model(gpt, cluster_preset("local-cpu"), &profile, 4, {}, {2, 1});
    CostTable costs = model.table(stages, 2, 4, "sgd");
    const StageMessages told = model.messages_inside(stages, 4).front();
    EXPECT_GT(told.f, Nanoseconds(0));
    costs.stages[0].f -= told.f;
    return costs;
  };
  const CostTable shares = table();
  EXPECT_NE(shares.source.find("share of the operations"), std::string::npos) << shares.source;

  DividedProfile halves{.ranks = {2, 1}, .ranks_measured = 4, .sizes = profile.sizes};
  for (ProfileSize& size : halves.sizes) {
    size.loss = {};
    for (LayerTimes& layer : size.layers) layer.f = Nanoseconds(600) * size.micro_batch_size;
  }
  profile.divided.push_back(halves);
  const CostTable measured = table();
  EXPECT_EQ(measured.stages[0].f, Nanoseconds(6 * 2400 + 7));  // all layers, and an action
  EXPECT_EQ(measured.source.find("share"), std::string::npos) << measured.source;
  EXPECT_NE(shares.stages[0].f, measured.stages[0].f);
  EXPECT_EQ(measured.every_route.latency, shares.every_route.latency);
}

TEST(CostModel, WithoutAProfileTimesComeFromOperations) {
  const CostModel model(model_preset("mlp"), cluster_preset("dgx-a100"), nullptr);
  const double operations = 2.0 * 2 * 1024 * 4096 + 2 * 4096;
  EXPECT_EQ(model.layer_times(2)[0].f.value, std::llround(operations / (0.5 * 312e12) * 1e9));
  EXPECT_NE(model.source().find("assumed: 50 %"), std::string::npos);
  const CostTable costs = model.table(kStages, 2, 2, "adamw");
  EXPECT_TRUE(costs.has_shared_links());  // a dgx's ports
  EXPECT_GT(costs.stages[0].opt, Nanoseconds(0));
}

TEST(CostModel, WhatIsRecomputedCountsToTheBackward) {
  const Model gpt = model_preset("gpt-tiny");
  const Cluster cluster = cluster_preset("dgx-a100");
  using Kind = RecomputeSpec::Kind;
  const auto times_of = [&](const RecomputeSpec& spec) {
    return CostModel(gpt, cluster, nullptr, 0, spec).layer_times(4);
  };
  const auto none = times_of({}), full = times_of({Kind::Full, {}}),
             selective = times_of({Kind::Selective, {}}), listed = times_of({Kind::Listed, {1}});
  for (std::size_t l = 0; l < none.size(); ++l) {
    EXPECT_EQ(full[l].i, none[l].i + none[l].f) << l;
    EXPECT_EQ(listed[l].i, l == 1 ? full[l].i : none[l].i) << l;
    EXPECT_EQ(full[l].w, none[l].w) << l;
  }
  // A block, in units of 2 · rows · width^2: 12 of weights; scores and their use 2 · sequence /
  // width.
  const double products = 2.0 * gpt.sequence / gpt.layers[1].in;
  const auto added = static_cast<double>((selective[1].i - none[1].i).value);
  EXPECT_NEAR(added / static_cast<double>(none[1].f.value), products / (12 + products), 0.02);
  EXPECT_EQ(selective.front().i, none.front().i);
  EXPECT_THROW(times_of({Kind::Listed, {std::string("nowhere")}}), InputError);
}

TEST(CostModel, RefusesAProfileOfSomethingElse) {
  Profile profile = mlp_profile();
  const Cluster cpu = cluster_preset("local-cpu");
  EXPECT_THROW(CostModel(model_preset("gpt-tiny"), cpu, &profile), InputError);
  EXPECT_THROW(CostModel(model_preset("mlp"), cluster_preset("dgx-a100"), &profile), InputError);
  profile.sizes[0].layers.pop_back();
  EXPECT_THROW(CostModel(model_preset("mlp"), cpu, &profile), InputError);
}

}  // namespace cost_model_test
}  // namespace pipewright::planner
