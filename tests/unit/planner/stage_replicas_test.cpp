// The ways to share ranks out among stages with replicas, what a rank of each has to do, and what
// the tuner makes of chains where it is known what is best.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/base/error.hpp"
#include "planner/branches/branch.hpp"
#include "planner/branches/replicated_stages.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/graph_partition/pipedream.hpp"
#include "planner/plans/difference.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "tests/support/draw.hpp"

namespace pipewright::planner {
namespace stage_replicas_test {

using test::Draw;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kCores = 16;

/// One layer of a chain: F and B in nanoseconds, and weights.
struct ChainLayer {
  std::int64_t forward = 0, backward = 0, weights = 0;
};

struct Chain {
  Job job;
  Profile profile;

  const Profile* costs() const { return &profile; }
};

/// A chain of layers that are measured, on ranks with fast links: what is exchanged costs nothing
/// but for the weights.
Chain chain_of(const std::vector<ChainLayer>& layers, int ranks, int micro_batches) {
  Chain chain;
  Job& job = chain.job;
  job.model.name = "chain";
  job.model.loss = LossKind::Mse;
  ProfileSize size;
  size.micro_batch_size = 1;
  for (const ChainLayer& layer : layers) {
    Layer& added = job.model.layers.emplace_back();
    added.name = "layer" + std::to_string(job.model.layers.size());
    added.kind = LayerKind::Custom;
    added.in = added.out = 1;
    added.custom = {"own", {}, layer.weights, 0};
    size.layers.push_back({.f = Nanoseconds(layer.forward),
                           .i = Nanoseconds(layer.backward / 2),
                           .w = Nanoseconds(layer.backward - layer.backward / 2),
                           .opt = {}});
  }
  job.cluster = cluster_preset("local-cpu", ranks);
  job.cluster.device.memory = Bytes(0);
  job.global_batch = micro_batches;
  job.strategy.pp_degree = {std::to_string(ranks)};
  job.strategy.micro_batch_size = {"1"};
  job.strategy.schedule_mode = {"1f1b-rr"};
  job.training.optimizer = "sgd";
  chain.profile.model_name = job.model.name;
  chain.profile.cluster = job.cluster;
  chain.profile.transfer_bytes_per_second = 1e12;
  chain.profile.sizes = {size};
  return chain;
}

SearchResult searched(const Chain& chain, int keep = 20, bool exhaustive = false) {
  SearchOptions options;
  options.cores = kCores;
  options.keep = keep;
  options.exhaustive = exhaustive;
  return search(chain.job, chain.costs(), options);
}

double slowest_stage_ns(const Chain& chain, const Candidate& row) {
  double slowest = 0;
  for (std::size_t s = 0; s < row.stages.size(); ++s) {
    Nanoseconds sum;
    for (int l = row.stages[s].first_layer; l < row.stages[s].end_layer; ++l) {
      const LayerTimes& layer = chain.profile.sizes.front().layers[static_cast<std::size_t>(l)];
      sum += layer.f + layer.i + layer.w;
    }
    slowest = std::max(slowest, static_cast<double>(sum.value) / row.parallel.stage_replicas[s]);
  }
  return slowest;
}

/// What PipeDream's own program says; a layer's weights are free, or too heavy to be exchanged.
double pipedream_optimum_ns(const std::vector<ChainLayer>& layers, int ranks) {
  PipeDreamProfile profile;
  double compute = 0, bytes = 0;
  for (const ChainLayer& layer : layers) {
    compute += static_cast<double>(layer.forward + layer.backward) * 1e-9;
    bytes += 4 * static_cast<double>(layer.weights);
    profile.compute_until.push_back(compute);
    profile.parameters_until.push_back(bytes);
    profile.output_bytes.push_back(0);
  }
  return pipedream_partition(profile, {{ranks, 1e12}}, false).slowest_stage_s * 1e9;
}

constexpr std::int64_t kHeavy = std::int64_t{1} << 40;  // weights: seconds to exchange

/// Layers of 10 to 40 us, some with weights that nobody can exchange behind each micro-batch.
std::vector<ChainLayer> random_chain(Draw& random, bool with_weights) {
  std::vector<ChainLayer> layers;
  const int count = 3 + random.below(4);
  for (int l = 0; l < count; ++l) {
    const std::int64_t time = 5'000 * (1 + random.below(4));
    layers.push_back({time, time, with_weights && random.below(3) == 0 ? kHeavy : 0});
  }
  return layers;
}

// --- The ways to share ranks out ---

TEST(Replications, OfFewRanksAreAllWhoseCountsDivideTheMicroBatches) {
  EXPECT_THAT(replications_of(1, 3, 5).all, ElementsAre(std::vector{1}));
  EXPECT_THAT(replications_of(3, 6, 3).all, ElementsAre(std::vector{3}, std::vector{1, 2},
                                                        std::vector{2, 1}, std::vector{1, 1, 1}));
  EXPECT_THAT(replications_of(3, 6, 2).all,
              ElementsAre(std::vector{3}, std::vector{1, 2}, std::vector{2, 1}));
  EXPECT_THAT(replications_of(4, 3, 4).all,
              ElementsAre(std::vector{1, 3}, std::vector{3, 1}, std::vector{1, 1, 1, 1}));
  EXPECT_TRUE(replications_of(4, 1, 3).all.empty());
  EXPECT_EQ(replications_of(8, 840, 8).all.size(), 128u);
}

TEST(Replications, OfManyRanksAreOneForEachNumberOfStages) {
  const Replications many = replications_of(12, 8, 6);
  EXPECT_TRUE(many.all.empty());
  EXPECT_THAT(many.stage_counts, ElementsAre(2, 3, 4, 5, 6));  // 12 does not divide 8
  EXPECT_FALSE(replications_of(12, 1, 12).all.empty());        // there is one way
  EXPECT_EQ(replications_of(512, 512, 100).stage_counts.size(), 100u);
}

TEST(Replications, AreWrittenAsTheScheduleTakesThem) {
  EXPECT_EQ(replicas_text({2, 1, 1}), "2,1,1");
  EXPECT_EQ(read_replicas("2,1,1"), (std::vector{2, 1, 1}));
  for (const char* text : {"", "2,,1", "2,x", "0,1", "-1"})
    EXPECT_FALSE(read_replicas(text)) << text;
  for (int p = 1; p < 6; ++p) {
    const Order by_itself = make_order("1f1b-rr", {p, 4, 1, {}});
    ParallelSetup setup;
    setup.pipeline = p;
    setup.micro_batches = 4;
    setup.stage_replicas = default_replicas(p);
    EXPECT_EQ(make_order("1f1b-rr", request_of(setup)).ranks, by_itself.ranks);
    const Placement first = first_placement(setup.stage_replicas);
    ASSERT_EQ(first.stages(), by_itself.stages());
    for (int s = 0; s < first.stages(); ++s)
      EXPECT_EQ(first.rank_of(StageId(s), MicroBatchId(0)),
                by_itself.placement.rank_of(StageId(s), MicroBatchId(0)));
  }
}

// --- The table over layers, ranks and stages ---

TEST(ReplicatedStages, TheTableFindsTheBestOfAllReplications) {
  int compared = 0, replicated = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    Draw random(seed);
    const int p = 2 + random.below(6);
    std::vector<ChainLayer> layers = random_chain(random, false);
    // Exchanging these is between free and too long.
    for (ChainLayer& layer : layers)
      layer.weights = random.one_of(0, 100'000, 3'000'000, 9'000'000);
    Chain chain = chain_of(layers, p, 60 * random.one_of(1, 7));
    chain.profile.transfer_latency = Nanoseconds(random.one_of(0, 300, 4'000));
    int before = 1;
    for (Layer& layer : chain.job.model.layers) {
      layer.in = before;
      before = layer.out = 1 << (20 + 2 * random.below(5));  // messages of 4 us to 1 ms
    }
    const auto costs = costs_of_job(chain.job, chain.costs(), kCores);
    ParallelSetup mesh;
    mesh.pipeline = p;
    mesh.micro_batches = chain.job.global_batch;
    ReplicatedStages stages(*costs, mesh);
    std::map<std::size_t, std::int64_t> best;  // by number of stages
    const int most = static_cast<int>(layers.size());
    for (const auto& replicas : replications_of(p, mesh.micro_batches, most).all) {
      const std::int64_t largest = stages.cut(replicas)->largest;
      const auto [entry, is_new] = best.try_emplace(replicas.size(), largest);
      entry->second = std::min(entry->second, largest);
    }
    ASSERT_FALSE(best.empty());
    for (const auto& [count, largest] : best) {
      const int number = static_cast<int>(count);
      EXPECT_EQ(stages.least_largest(number), largest) << seed;
      const std::vector<int> replicas = stages.best_replicas(number);
      EXPECT_EQ(replicas.size(), count);
      EXPECT_EQ(stages.cut(replicas)->largest, largest) << seed;
      replicated += *std::max_element(replicas.begin(), replicas.end()) > 1 ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_GT(compared, 150);
  EXPECT_GT(replicated, 50);
}

TEST(ReplicatedStages, TheBusiestRankOfTheBestHasWhatPipeDreamsProgramSays) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    Draw random(seed);
    const int p = 1 + random.below(6), m = 60;
    const std::vector<ChainLayer> layers = random_chain(random, seed % 3 != 0);
    const Chain chain = chain_of(layers, p, m);
    const auto costs = costs_of_job(chain.job, chain.costs(), kCores);
    ParallelSetup mesh;
    mesh.pipeline = p;
    mesh.micro_batches = m;
    ReplicatedStages stages(*costs, mesh);
    std::int64_t least = INT64_MAX;
    const int most = std::min(p, static_cast<int>(layers.size()));
    for (int count = 1; count <= most; ++count)
      least = std::min(least, stages.least_largest(count));
    EXPECT_NEAR(static_cast<double>(least) / m, pipedream_optimum_ns(layers, p), 1e-3) << seed;
  }
}

// --- The search ---

/// With many micro-batches the pace of the slowest stage is all that matters. Where 1F1B-RR has too
/// few micro-batches in flight to keep that pace (its run-ahead is rounded down to whole rounds of
/// the replicas), which PipeDream's program does not know, another one wins.
TEST(ReplicatedSearch, TheSlowestStageOfTheBestIsPipeDreamsOptimumWhereThatKeepsItsPace) {
  constexpr int kMicroBatches = 1200;
  int with_replicas = 0, equal = 0, out_of_pace = 0;
  for (std::uint32_t seed = 0; seed < 24; ++seed) {
    Draw random(seed + 100);
    const int p = 2 + random.below(4);
    const std::vector<ChainLayer> layers = random_chain(random, true);
    const double optimum = pipedream_optimum_ns(layers, p);
    if (optimum > 1e6) continue;  // more ranks than stages that can do without an exchange
    const Chain chain = chain_of(layers, p, kMicroBatches);
    const SearchResult result = searched(chain, 1000);
    ASSERT_TRUE(result.best);
    const Candidate& best = result.ranked.front();
    const auto is_optimal = [&](const Candidate& row) {
      return slowest_stage_ns(chain, row) < optimum + 1e-3;
    };
    const auto optimal = std::find_if(result.ranked.begin(), result.ranked.end(), is_optimal);
    ASSERT_NE(optimal, result.ranked.end());
    EXPECT_GT(slowest_stage_ns(chain, *optimal), optimum - 1e-3);
    if (is_optimal(best)) {
      ++equal;
    } else {
      EXPECT_GT(static_cast<double>(optimal->step.value) / kMicroBatches, 1.02 * optimum)
          << seed << ": " << describe(best) << ", not " << describe(*optimal);
      ++out_of_pace;
    }
    const auto& replicas = best.parallel.stage_replicas;
    with_replicas += replicas.size() > 1 && *std::max_element(replicas.begin(), replicas.end()) > 1;
  }
  EXPECT_GT(with_replicas, 5);
  EXPECT_GT(equal, 5 * out_of_pace);
}

/// Convolutions in front have most of the work and few weights, the layers behind them the reverse:
/// PipeDream's VGG-16.
TEST(ReplicatedSearch, HeavyFirstLayersWithFewWeightsGetTheReplicas) {
  std::vector<ChainLayer> layers;
  for (int l = 0; l < 5; ++l) layers.push_back({100'000, 200'000, 1'000});
  for (int l = 0; l < 2; ++l) layers.push_back({50'000, 100'000, 100'000'000});
  const SearchResult four = searched(chain_of(layers, 4, 60));
  EXPECT_THAT(four.ranked.front().parallel.stage_replicas, ElementsAre(3, 1));
  EXPECT_EQ(four.ranked.front().stages.front().end_layer, 5);
  ASSERT_TRUE(four.best);
  EXPECT_EQ(four.best->schedule.parameters.at("replicas"), "3,1");
  const SearchResult five = searched(chain_of(layers, 5, 60));
  EXPECT_THAT(five.ranked.front().parallel.stage_replicas, ElementsAre(4, 1));
  // Of ten ranks there are too many ways to try each: the best for each number of stages is there.
  const SearchResult ten = searched(chain_of(layers, 10, 72));
  const auto& replicas = ten.ranked.front().parallel.stage_replicas;
  EXPECT_EQ(replicas.size() > 1 ? replicas.back() : 0, 1) << describe(ten.ranked.front());
  EXPECT_LT(ten.configurations, 40);
}

/// The default replication (the first stage twice) is one of the rows, and none beats the first.
TEST(ReplicatedSearch, TheBestIsNoWorseThanTheDefaultReplication) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    Draw random(seed);
    const Chain chain = chain_of(random_chain(random, false), 4, 12);
    const SearchResult result = searched(chain, 10000, true);
    const auto is_default = [](const Candidate& row) {
      return row.parallel.stage_replicas == default_replicas(4) && row.partition == "balanced";
    };
    const auto row = std::find_if(result.ranked.begin(), result.ranked.end(), is_default);
    ASSERT_NE(row, result.ranked.end());
    EXPECT_LE(result.ranked.front().step, row->step);
  }
}

TEST(ReplicatedSearch, TheStrategysReplicasAreAlwaysTheAnswers) {
  Draw random(5);
  Chain chain = chain_of(random_chain(random, false), 4, 12);
  chain.job.strategy.pp_degree = {};
  chain.job.strategy.stage_replicas = {{1, 2}, {2, 1, 1}, {1, 2}};
  const SearchResult result = searched(chain, 1000, true);
  ASSERT_GE(result.ranked.size(), 2u);
  for (const Candidate& row : result.ranked) {
    const auto& replicas = row.parallel.stage_replicas;
    EXPECT_TRUE(replicas == std::vector({1, 2}) || replicas == std::vector({2, 1, 1}));
    EXPECT_EQ(row.parallel.pipeline, std::accumulate(replicas.begin(), replicas.end(), 0));
  }
  std::set<std::string> seen;
  for (const Candidate& row : result.ranked)
    EXPECT_TRUE(seen.insert(describe(row) + row.partition).second) << describe(row);
  EXPECT_EQ(result.baselines.size(), 2u);  // on one rank, and on several
  chain.job.strategy.pp_degree = {"2"};
  const SearchResult none = searched(chain);
  EXPECT_FALSE(none.best);
  EXPECT_THAT(by_sentence(none.examples).at("outside the constraint of 1f1b-rr"),
              HasSubstr("together 2"));
  chain.job.strategy.schedule_mode = {"1f1b-rr", "1f1b"};
  EXPECT_THROW(searched(chain), InputError);
  chain.job.strategy.schedule_mode = {};
  EXPECT_THROW(searched(chain), InputError);
}

/// A stage may have all ranks: there can be more of these than layers.
TEST(ReplicatedSearch, MayHaveMoreRanksThanLayers) {
  const std::vector<ChainLayer> layers{{20'000, 40'000, 0}, {10'000, 20'000, 0}};
  const SearchResult result = searched(chain_of(layers, 6, 12), 100, true);
  ASSERT_TRUE(result.best);
  for (const Candidate& row : result.ranked) EXPECT_LE(row.stages.size(), 2u);
  EXPECT_EQ(result.ranked.front().parallel.pipeline, 6);
  Chain by_1f1b = chain_of(layers, 6, 12);
  by_1f1b.job.strategy.schedule_mode = {"1f1b"};
  EXPECT_FALSE(searched(by_1f1b).best);
}

TEST(ReplicatedSearch, AnExplanationTakesReplicasByName) {
  Draw random(3);
  const Chain chain = chain_of(random_chain(random, false), 4, 12);
  const SearchResult found = searched(chain, 1000, true);
  const auto explained = [&](const char* text) {
    return explain(chain.job, chain.costs(), kCores, found, text);
  };
  for (const Candidate& row : found.ranked) {
    const std::string text =
        "replicas=" + replicas_text(row.parallel.stage_replicas) + ",partition=" + row.partition;
    const Explanation why = explained(text.c_str());
    ASSERT_TRUE(why.candidate) << text << why.sentences.back();
    EXPECT_EQ(why.candidate->step, row.step) << text;
  }
  const Explanation fewer = explained("replicas=1,2,micro_batches=12");
  ASSERT_TRUE(fewer.candidate);
  EXPECT_EQ(fewer.candidate->parallel.pipeline, 3);
  EXPECT_THAT(explained("replicas=2,1,pp=4").sentences.back(), HasSubstr("together 4"));
  EXPECT_THAT(explained("replicas=5,1").sentences.back(), HasSubstr("needs 6 devices"));
  EXPECT_THROW(explained("replicas=2,1,schedule=1f1b"), InputError);
  EXPECT_THROW(explained("replicas=x"), InputError);
  EXPECT_THAT(explained("replicas=2,dp=2,micro_batches=6").sentences.back(), HasSubstr("say dp=1"));
  const Explanation without = explained("schedule=pipedream");
  ASSERT_TRUE(without.candidate);
  EXPECT_TRUE(without.candidate->parallel.stage_replicas.empty());
}

TEST(ReplicatedSearch, TwoPlansDifferInTheirReplicas) {
  Draw random(4);
  Chain chain = chain_of(random_chain(random, false), 4, 12);
  chain.job.strategy.stage_replicas = {{1, 3}};
  const auto one = searched(chain).best;
  chain.job.strategy.stage_replicas = {{3, 1}};
  const auto other = searched(chain).best;
  ASSERT_TRUE(one && other);
  EXPECT_THAT(plan_differences(*one, *other),
              ::testing::Contains("schedule's parameters replicas=1,3, then replicas=3,1"));
}

}  // namespace stage_replicas_test
}  // namespace pipewright::planner
