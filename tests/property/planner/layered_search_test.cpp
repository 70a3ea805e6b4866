// The tuner on jobs that are planned layer by layer, with replicas of the pipeline searched: the
// search with its bounds against the search without, on random jobs that are small enough to
// simulate everything; and each bound against what it bounds.
#include <gtest/gtest.h>

#include <set>

#include "core/program/lower.hpp"
#include "planner/branches/branch.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/plan_of_candidate.hpp"
#include "planner/search/search.hpp"
#include "sim/engine.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace layered_search_test {

using test::Draw;

constexpr int kCores = 4;  // of the machine that a job's ranks share

Cluster random_cluster(Draw& random) {
  if (random.below(3) == 0) return cluster_preset("local-cpu", random.one_of(2, 4, 8));
  Cluster cluster = cluster_preset(random.below(2) == 0 ? "dgx-a100" : "dgx-h100", 8);
  if (random.below(2) == 0) {  // ports to cross with few devices
    cluster.nodes = random.one_of(2, 4);
    cluster.devices_per_node = 8 / cluster.nodes;
    cluster.across.bytes_per_second /= random.one_of(1, 20);
  }
  return cluster;
}

/// B's own times, also such as no layer has: below I, above I and W together.
void add_backwards_and_issue(Profile& profile, Draw random) {
  if (random.coin()) profile.transfer_issue = Nanoseconds(random.below(20'000));
  if (random.coin()) return;
  for (ProfileSize& size : profile.sizes) {
    for (LayerTimes& layer : size.layers) {
      const Nanoseconds both = layer.b();
      layer.saved_by_b = both - Nanoseconds(random.below(static_cast<int>(both.value * 3 / 2) + 1));
    }
  }
}

Profile random_profile(const Model& model, const Cluster& cluster, Draw& random) {
  Profile profile;
  profile.model_name = model.name;
  profile.cluster = cluster;
  profile.transfer_latency = Nanoseconds(random.one_of(0, 500, 20'000));
  profile.transfer_bytes_per_second = random.one_of(1, 10) * 1e9;
  profile.action_overhead = Nanoseconds(random.one_of(0, 3'000));
  ProfileSize size;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    size.layers.push_back({.f = Nanoseconds(1'000 + random.below(50'000)),
                           .i = Nanoseconds(random.below(60'000)),
                           .w = Nanoseconds(random.below(40'000)),
                           .opt = Nanoseconds(random.below(9'000))});
  }
  size.micro_batch_size = 1;
  profile.sizes.push_back(size);
  size.micro_batch_size = 64;
  for (LayerTimes& layer : size.layers) layer.f += Nanoseconds(300'000);
  profile.sizes.push_back(size);
  add_backwards_and_issue(profile, random);
  return profile;
}

struct Asked {
  Job job;
  std::optional<Profile> profile;
};

Asked random_job(std::uint32_t seed) {
  Draw random(seed);
  Asked asked;
  Job& job = asked.job;
  const char* models[] = {"gpt-tiny", "mlp", "resnet-tiny"};
  job.model = model_preset(models[random.below(3)]);
  job.cluster = random_cluster(random);
  job.global_batch = random.one_of(4, 6, 8, 12, 16);
  if (random.below(4) == 0) job.cluster.device.memory = Bytes(random.one_of(1, 4, 16) << 20);
  Strategy& strategy = job.strategy;
  if (random.below(3) == 0) strategy.dp_degree = {"1", "2", "4"};
  if (random.below(3) == 0) strategy.pp_degree = {"1", "2", "3"};
  if (random.below(4) == 0) strategy.micro_batch_size = {"1", "2"};
  if (random.below(5) == 0) strategy.accumulate_steps = {"2", "4"};
  const char* names[] = {"1f1b",  "interleaved", "zb-h1",   "gpipe",    "naive",
                         "v-min", "zbv",         "chimera", "pipedream"};
  if (random.below(2) == 0) {
    for (int k = 0; k < 4; ++k) strategy.schedule_mode.emplace_back(names[random.below(9)]);
  }
  if (strategy.dp_degree.empty() && random.below(4) == 0) {
    strategy.sharding_degree = 2;
    strategy.dp_degree = {"2"};
    auto more = random;  // a copy, as it was added later: a seed's job stays what it was but for it
    for (const char* stage : {"1", "2", "3"}) {
      if (more.below(2) == 0) strategy.sharding_stage.emplace_back(stage);
    }
    if (more.below(3) == 0) strategy.dp_degree = {"2", "4"};
    strategy.unshard_lookahead = static_cast<int>(more.below(2));
  }
  if (random.below(3) == 0) {
    strategy.mp_degree = {"1", "2", "4"};
    auto more = random;
    if (more.below(2) == 0) strategy.use_sequence_parallel = {"false", "true"};
  }
  job.training.optimizer = random.below(2) == 0 ? "adamw" : "sgd";
  const auto& asked_names = strategy.schedule_mode;
  const bool updates_at_once =
      std::find(asked_names.begin(), asked_names.end(), "pipedream") == asked_names.end();
  if (updates_at_once && random.below(4) == 0) job.training.clip_grad_norm = 1;
  if (random.below(4) == 0) job.training.recompute.kind = RecomputeSpec::Kind::Full;
  if (job.cluster.device.kind == "cpu" && random.below(2) == 0)
    asked.profile = random_profile(job.model, job.cluster, random);
  return asked;
}

SearchResult searched(const Asked& asked, int keep, bool exhaustive, int threads = 0) {
  SearchOptions options = test::search_options(keep, exhaustive, threads);
  options.cores = kCores;
  return search(asked.job, asked.profile ? &*asked.profile : nullptr, options);
}

TEST(LayeredSearch, FindsWhatSimulatingEverythingFinds) {
  int found = 0, with_replicas = 0;
  for (std::uint32_t seed = 0; seed < 80; ++seed) {
    const Asked asked = random_job(seed);
    const SearchResult quick = searched(asked, 3, false), all = searched(asked, 3, true);
    SCOPED_TRACE(seed);
    test::expect_same_rows(quick, all);
    found += all.ranked.empty() ? 0 : 1;
    with_replicas += !all.ranked.empty() && all.ranked.front().parallel.data > 1 ? 1 : 0;
  }
  EXPECT_GT(found, 60);
  EXPECT_GT(with_replicas, 15);
  EXPECT_LT(with_replicas, found);
}

/// A search of a measured job, whose backwards take what no sum of halves does.
TEST(LayeredSearch, NoBoundExceedsWhatItBoundsWhereBackwardsWereMeasured) {
  int compared = 0, measured = 0;
  for (std::uint32_t seed = 300; seed < 330; ++seed) {
    Asked asked = random_job(seed);
    Draw random(seed);
    asked.job.cluster = cluster_preset("local-cpu", random.one_of(2, 4));
    asked.job.strategy.schedule_mode = {"1f1b", "zb-h1", "interleaved", "zbv"};
    asked.profile = random_profile(asked.job.model, asked.job.cluster, random);
    const auto& layers = asked.profile->sizes.front().layers;
    measured += layers.front().saved_by_b != Nanoseconds(0) ? 1 : 0;
    const auto costs = costs_of_job(asked.job, &*asked.profile, kCores);
    SCOPED_TRACE(seed);
    const SearchResult all = searched(asked, 100000, true);
    test::expect_bounds_hold(*costs, all);
    compared += static_cast<int>(all.ranked.size());
    test::expect_same_rows(searched(asked, 3, false), searched(asked, 3, true));
  }
  EXPECT_GT(compared, 300);
  EXPECT_GT(measured, 8);
}

TEST(LayeredSearch, NoBoundExceedsWhatItBounds) {
  int compared = 0;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const Asked asked = random_job(seed);
    const auto costs = costs_of_job(asked.job, asked.profile ? &*asked.profile : nullptr, kCores);
    SCOPED_TRACE(seed);
    const SearchResult all = searched(asked, 100000, true);
    test::expect_bounds_hold(*costs, all);
    for (const Candidate& row : all.ranked) {
      EXPECT_GT(costs->least_step(row.parallel), 0) << describe(row);
      ++compared;
    }
  }
  EXPECT_GT(compared, 2000);
}

/// The same job of a model with experts, which replicas may divide.
Asked random_job_with_experts(std::uint32_t seed) {
  Asked asked = random_job(seed);
  asked.job.model = model_preset("deepseek-tiny");
  asked.job.strategy.ep_degree = {"1", "2"};
  if (asked.profile) {
    Draw random(seed);
    asked.profile = random_profile(asked.job.model, asked.job.cluster, random);
  }
  return asked;
}

TEST(LayeredSearch, ExpertsAreDividedBesideLayersAndShards) {
  int divided = 0, beside_tensor = 0, beside_shards = 0;
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const Asked asked = random_job_with_experts(seed);
    SCOPED_TRACE(seed);
    const SearchResult all = searched(asked, 100000, true);
    test::expect_same_rows(searched(asked, 3, false), searched(asked, 3, true));
    test::expect_bounds_hold(
        *costs_of_job(asked.job, asked.profile ? &*asked.profile : nullptr, kCores), all);
    for (const Candidate& row : all.ranked) {
      if (row.parallel.experts == 1) continue;
      ++divided;
      beside_tensor += row.parallel.tensor > 1 ? 1 : 0;
      beside_shards += row.parallel.zero > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(divided, 500);
  EXPECT_GT(beside_tensor, 100);
  EXPECT_GT(beside_shards, 50);
}

/// The same job of a model of sequences, which ranks may divide.
Asked random_job_with_sequences(std::uint32_t seed) {
  Asked asked = random_job(seed);
  asked.job.model = model_preset(seed % 2 == 0 ? "gpt-tiny" : "llama-tiny");
  asked.job.strategy.cp_degree = {"1", "2"};
  asked.job.strategy.cp_comm_type = {"all_gather", "p2p"};
  if (asked.profile) {
    Draw random(seed);
    asked.profile = random_profile(asked.job.model, asked.job.cluster, random);
  }
  return asked;
}

TEST(LayeredSearch, SequencesAreDividedBesideLayersRowsAndShards) {
  int divided = 0, beside_tensor = 0, beside_rows = 0, beside_shards = 0;
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const Asked asked = random_job_with_sequences(seed);
    SCOPED_TRACE(seed);
    const SearchResult all = searched(asked, 100000, true);
    test::expect_same_rows(searched(asked, 3, false), searched(asked, 3, true));
    test::expect_bounds_hold(
        *costs_of_job(asked.job, asked.profile ? &*asked.profile : nullptr, kCores), all);
    for (const Candidate& row : all.ranked) {
      if (row.parallel.context == 1) continue;
      ++divided;
      beside_tensor += row.parallel.tensor > 1 ? 1 : 0;
      beside_rows += row.parallel.sequence_parallel ? 1 : 0;
      beside_shards += row.parallel.zero > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(divided, 300);
  EXPECT_GT(beside_tensor, 60);
  EXPECT_GT(beside_rows, 20);
  EXPECT_GT(beside_shards, 20);
}

/// What replicas exchange behind one rank's work is known exactly, so its bound is the step.
TEST(LayeredSearch, TheBoundOfReplicasOfOneRankIsTheirStep) {
  Asked asked;
  asked.job.model = model_preset("mlp");
  asked.job.cluster = cluster_preset("dgx-a100", 16);
  asked.job.global_batch = 64;
  asked.job.strategy.pp_degree = {"1"};
  asked.job.strategy.dp_degree = {"4", "8", "16"};
  const auto costs = costs_of_job(asked.job, nullptr, kCores);
  const SearchResult result = searched(asked, 100, true);
  ASSERT_GE(result.ranked.size(), 12u);
  for (const Candidate& row : result.ranked) {
    EXPECT_NEAR(static_cast<double>(costs->least_step(row.parallel)),
                static_cast<double>(row.step.value), 50)
        << describe(row);
  }
}

TEST(LayeredSearch, APlanWithReplicasIsPredictedAsItWasSearchedAndSurvivesItsFile) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const SearchResult result = searched(random_job(seed), 2, false);
    if (!result.best) continue;
    SCOPED_TRACE(seed);
    const Plan plan = test::expect_survives_its_file(result);
    EXPECT_EQ(plan.replicas(), result.ranked.front().parallel.data);
  }
}

/// Two replicas in the place of all: every row is simulated again with all of them.
TEST(LayeredSearch, FewReplicasTakeTheTimeOfAll) {
  int fewer = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Asked asked = random_job(seed);
    const Job& job = asked.job;
    const auto costs = costs_of_job(job, asked.profile ? &*asked.profile : nullptr, kCores);
    for (const Candidate& row : searched(asked, 60, false).ranked) {
      const ParallelSetup& parallel = row.parallel;
      const Schedule& schedule = find_schedule(row.schedule);
      if (costs->simulated_replicas(parallel) == parallel.data || schedule.traits.cost_driven)
        continue;
      const Order order =
          replicate(make_order(row.schedule,
                               {parallel.pipeline, parallel.micro_batches, parallel.chunks, {}}),
                    parallel.data);
      const Program program = lower(
          order, policy_for(job, schedule),
          lowering_of_training(job.training, sharding_of(job, parallel), job.model, row.stages));
      const CostTable table = costs->table(parallel, row.stages, parallel.data);
      const sim::Result result = sim::simulate(program, table);
      ASSERT_TRUE(result.finished);
      const Figures figures = figures_of(program, result.timeline, table);
      EXPECT_EQ(Nanoseconds(figures.makespan_ns), row.step) << seed << ": " << describe(row);
      EXPECT_DOUBLE_EQ(figures.bubble_ratio, row.bubble_ratio);
      ASSERT_EQ(row.peak_activations.size(), figures.ranks.size());
      Bytes fullest;
      for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
        EXPECT_EQ(row.peak_activations[r], figures.ranks[r].peak_activations);
        fullest = std::max(fullest, Bytes(figures.ranks[r].peak_bytes));
      }
      EXPECT_EQ(fullest, row.peak_bytes);
      ++fewer;
    }
  }
  EXPECT_GT(fewer, 50);
}

TEST(LayeredSearch, ThreadsChangeNothing) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const SearchResult one = searched(random_job(seed), 5, false, 1),
                       many = searched(random_job(seed), 5, false, 5);
    test::expect_same_search(one, many);
  }
}

/// Replicas that the job leaves open are divisors of its devices; the machine's own cores bound
/// them as they bound the pipeline's ranks, unless the job names them.
TEST(LayeredSearch, OpenReplicasAreDivisorsOfTheDevices) {
  Asked asked;
  asked.job.model = model_preset("gpt-tiny");
  asked.job.cluster = cluster_preset("dgx-a100");
  asked.job.cluster.devices_per_node = 6;
  asked.job.global_batch = 12;
  std::set<int> found;
  for (const Candidate& row : searched(asked, 100000, true).ranked) {
    found.insert(row.parallel.data);
    EXPECT_EQ(row.parallel.data * row.parallel.micro_batches * row.parallel.micro_batch_size, 12);
    EXPECT_LE(row.parallel.data * row.parallel.pipeline, 6);
    EXPECT_EQ(row.parallel.zero, 0);
  }
  EXPECT_EQ(found, (std::set{1, 2, 3, 6}));
  asked.job.cluster = cluster_preset("local-cpu", 8);
  asked.job.global_batch = 8;
  for (const Candidate& row : searched(asked, 100000, true).ranked)
    EXPECT_LE(row.parallel.data * row.parallel.pipeline, kCores);
  asked.job.strategy.dp_degree = {"8"};
  EXPECT_EQ(searched(asked, 10, false).ranked.front().parallel.data, 8);
  asked.job.strategy.dp_degree = {};
  asked.job.strategy.pp_degree = {"6"};
  for (const Candidate& row : searched(asked, 100000, true).ranked)
    EXPECT_EQ(row.parallel.data * row.parallel.pipeline, 6);
}

/// What an explanation leaves out is as in the best, on as many devices.
TEST(LayeredSearch, AnExplanationKeepsTheDevicesOfTheBest) {
  Asked asked;
  asked.job.model = model_preset("gpt-tiny");
  asked.job.cluster = cluster_preset("local-cpu", 4);
  asked.job.global_batch = 16;
  const SearchResult found = searched(asked, 1, false);
  ASSERT_EQ(found.ranked.front().devices(), 4);
  const auto parallel_of = [&](const char* text) {
    const auto why = explain(asked.job, nullptr, kCores, found, text);
    EXPECT_TRUE(why.candidate) << text << ": " << why.sentences.back();
    return why.candidate ? why.candidate->parallel : ParallelSetup{};
  };
  EXPECT_EQ(parallel_of("pp=2,micro_batch_size=1,schedule=1f1b").data, 2);
  EXPECT_EQ(parallel_of("pp=4,micro_batch_size=1,schedule=1f1b").data, 1);
  EXPECT_EQ(parallel_of("pp=3,micro_batch_size=1,schedule=1f1b").data, 1);
  EXPECT_EQ(parallel_of("pp=1,dp=2,micro_batch_size=8,schedule=naive").data, 2);
}

/// Sizes that the job names say how many replicas there are.
TEST(LayeredSearch, SizesThatTheJobNamesLeaveReplicasTheRest) {
  Asked asked;
  asked.job.model = model_preset("gpt-tiny");
  asked.job.cluster = cluster_preset("dgx-a100", 8);
  asked.job.global_batch = 32;
  asked.job.strategy.micro_batch_size = {"2"};
  asked.job.strategy.accumulate_steps = {"4"};
  const SearchResult result = searched(asked, 1000, true);
  ASSERT_FALSE(result.ranked.empty());
  for (const Candidate& row : result.ranked) EXPECT_EQ(row.parallel.data, 4);
  EXPECT_EQ(by_sentence(result.pruned)
                .at("dp_degree, accumulate_steps and micro_batch_size are not the global batch"),
            3);
}

}  // namespace layered_search_test
}  // namespace pipewright::planner
