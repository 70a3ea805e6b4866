// The tuner on clusters whose nodes differ in speed and memory: the search with its bounds against
// the search without, on random jobs; and each bound against what it bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "core/model/architecture_model.hpp"
#include "planner/branches/branch.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/branches/recompute_by_stage.hpp"
#include "planner/estimate/parallel_space.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace mixed_clusters_test {

using test::Draw;
using test::searched;

Cluster random_cluster(Draw& draw) {
  const char* names[] = {"dgx-v100", "dgx-a100-40gb", "dgx-a100", "dgx-h100", "dgx-b200"};
  Cluster cluster;
  cluster.name = "mixed";
  cluster.devices_per_node = 2;
  const int kinds = draw.one_of(2, 2, 3);
  for (int k = 0; k < kinds; ++k) {
    const Cluster one = cluster_preset(names[draw.one_of(0, 1, 2, 3, 4)]);
    NodeKind kind{k + 1 < kinds ? 1 : draw.one_of(1, 2), one.device, one.inside, one.across};
    kind.device.memory = Bytes(kind.device.memory.value / draw.one_of(1, 8, 40));
    cluster.kinds.push_back(kind);
  }
  summarise_kinds(cluster);
  return cluster;
}

Job random_job(std::uint32_t seed) {
  Draw draw(seed);
  const int heads = draw.one_of(8, 16, 32);
  Architecture model = gpt_architecture("gpt", 64 * heads, draw.one_of(6, 7, 10, 13), heads, 32000,
                                        draw.one_of(512, 1024, 2048));
  model.gated = seed % 5 == 0;
  model.tied_head = seed % 3 != 0;
  if (seed % 4 == 0) {
    model.experts = {.count = 8, .chosen = 2, .ffn = model.ffn / 2, .dense_blocks = 1};
  }
  Job job;
  job.architecture = model;
  job.model = model_of(model);
  job.cluster = random_cluster(draw);
  job.global_batch = draw.one_of(8, 16, 24);
  Strategy& strategy = job.strategy;
  if (draw.coin()) strategy.mp_degree = {"1", "2"};
  if (draw.coin()) strategy.recompute = {"none", "full"};
  if (draw.coin()) strategy.pp_degree = {"2", "3", "4"};
  if (draw.coin()) strategy.dp_degree = {"1", "2"};  // and some devices idle
  strategy.micro_batch_size = {"1", "2"};
  const char* names[] = {"1f1b",  "interleaved", "zbv",     "zb-h1",    "gpipe",
                         "naive", "v-min",       "chimera", "zbv-auto", "interleaved-zb"};
  for (int k = 0; k < 3; ++k)
    strategy.schedule_mode.emplace_back(names[draw.one_of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)]);
  strategy.sharding_stage = {"0", "1"};
  strategy.use_sequence_parallel = {"false"};
  if (draw.one_of(0, 1, 2) == 0) strategy.node_order = {"file"};
  return job;
}

std::int64_t left_out(const SearchResult& result) {
  std::int64_t sum = 0;
  for (const auto& [reason, number] : result.pruned) sum += number;
  return sum;
}

TEST(MixedClusters, TheSearchFindsWhatSimulatingEverythingFinds) {
  int found = 0;
  for (std::uint32_t seed = 0; seed < 70; ++seed) {
    const Job job = random_job(seed);
    const SearchResult quick = searched(job, 3, false), all = searched(job, 3, true);
    SCOPED_TRACE(seed);
    test::expect_same_rows(quick, all);
    EXPECT_EQ(quick.configurations, quick.evaluated + left_out(quick));
    found += all.ranked.empty() ? 0 : 1;
  }
  EXPECT_GT(found, 35);  // in the others nothing fits
}

TEST(MixedClusters, NoBoundExceedsWhatItBounds) {
  int rows = 0;
  for (std::uint32_t seed = 0; seed < 25; ++seed) {
    const Job job = random_job(seed);
    const auto costs = costs_of_job(job, nullptr, 0);
    SCOPED_TRACE(seed);
    const SearchResult all = searched(job, 100000, true);
    test::expect_bounds_hold(*costs, all);
    rows += static_cast<int>(all.ranked.size());
  }
  EXPECT_GT(rows, 500);
}

/// Each configuration has exactly the memory that it takes, by rank: the rule has to let it pass.
TEST(MixedClusters, TheMemoryRuleRefusesNothingThatFits) {
  int rows = 0;
  for (std::uint32_t seed = 0; seed < 25; ++seed) {
    const Job job = random_job(seed);
    const auto costs = costs_of_job(job, nullptr, 0);
    for (const Candidate& row : searched(job, 100000, true).ranked) {
      const auto stages = std::make_shared<const std::vector<StagePlan>>(row.stages);
      const Branch branch{
          {&find_schedule(row.schedule), row.parallel, row.partition == "even"}, stages, 0};
      const Evaluation evaluation = evaluate(job, *costs, branch, costs->memory_limit());
      const RankLimits own = limits_of(*costs, row.parallel, costs->memory_limit());
      for (std::size_t r = 0; r < evaluation.rank_peaks.size(); ++r)
        EXPECT_LE(evaluation.rank_peaks[r], own.of(static_cast<int>(r))) << describe(row);
      const RankLimits exact(costs->memory_limit(), evaluation.rank_peaks);
      EXPECT_TRUE(may_fit(branch.configuration, row.stages,
                          chosen_stage_memory(*costs, row.parallel, row.stages), exact))
          << seed << ": " << describe(row);
      EXPECT_TRUE(may_hold(exact, row.parallel.pipeline, costs->least_memory(row.parallel)))
          << seed << ": " << describe(row);
      ++rows;
    }
  }
  EXPECT_GT(rows, 500);
}

TEST(MixedClusters, APlanIsPredictedAsItWasSearchedAndSurvivesItsFile) {
  for (std::uint32_t seed = 0; seed < 25; ++seed) {
    const SearchResult result = searched(random_job(seed), 2, false);
    if (!result.best) continue;
    SCOPED_TRACE(seed);
    test::expect_survives_its_file(result);
  }
}

TEST(MixedClusters, ThreadsChangeNothing) {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    const SearchResult one = searched(random_job(seed), 5, false, 1),
                       many = searched(random_job(seed), 5, false, 5);
    test::expect_same_search(one, many);
  }
}

/// Rows of the journal are found again by name: what has the same one has to have the same record.
TEST(MixedClusters, ASearchGoesOnFromHalfOfItsJournal) {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    const Job job = random_job(seed);
    std::map<std::string, std::string> written;
    SearchJournal journal;
    journal.add = [&](const std::string& configuration, const std::string& record) {
      EXPECT_EQ(written.try_emplace(configuration, record).first->second, record) << configuration;
    };
    SearchOptions options;
    options.keep = 3;
    options.journal = &journal;
    const SearchResult whole = search(job, nullptr, options);
    for (const auto& [configuration, record] : written) {
      if (configuration.size() % 2 == 0) journal.known[configuration] = record;
    }
    const SearchResult again = search(job, nullptr, options);
    SCOPED_TRACE(seed);
    test::expect_same_search(again, whole);
  }
}

/// A pipeline of two nodes of A100 and one of V100, each with all of a stage.
Job two_fast_nodes_and_a_slow_one(int micro_batch) {
  Job job = random_job(1);
  job.architecture = gpt_architecture("gpt", 4096, 32, 32, 32000, 2048);
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset("dgx-a100", 8);
  job.cluster.kinds = {{2, job.cluster.device, job.cluster.inside, job.cluster.across}};
  const Cluster old = cluster_preset("dgx-v100", 8);
  job.cluster.kinds.push_back({1, old.device, old.inside, old.across});
  summarise_kinds(job.cluster);
  job.global_batch = 64 * micro_batch;
  job.strategy = {};
  job.strategy.pp_degree = {"3"};
  job.strategy.mp_degree = {"8"};
  job.strategy.schedule_mode = {"1f1b"};
  job.strategy.micro_batch_size = {std::to_string(micro_batch)};
  return job;
}

/// The busiest stage of three, in nanoseconds: rank 0 has the layers before `first`, rank 1 those
/// before `second`.
std::int64_t busiest_stage(const LayerCosts& costs, int first, int second) {
  std::int64_t stages[3] = {};
  const int layers = static_cast<int>(costs.of_kind.front().size());
  for (int layer = 0; layer < layers; ++layer) {
    const int rank = layer < first ? 0 : layer < second ? 1 : 2;
    stages[rank] +=
        costs.of_kind[static_cast<std::size_t>(costs.kind(rank))][static_cast<std::size_t>(layer)];
  }
  return *std::ranges::max_element(stages);
}

std::int64_t least_busiest_stage(const LayerCosts& costs) {
  const int layers = static_cast<int>(costs.of_kind.front().size());
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int first = 1; first < layers; ++first) {
    for (int second = first + 1; second < layers; ++second)
      least = std::min(least, busiest_stage(costs, first, second));
  }
  return least;
}

/// How many times as long as on the faster of two kinds a block takes on the slower one.
double times_as_slow(const LayerCosts& costs) {
  const double one = static_cast<double>(costs.of_kind[0][1]),
               other = static_cast<double>(costs.of_kind[1][1]);
  return std::max(one, other) / std::min(one, other);
}

/// Of the rows of a cut the first, and so the fastest.
const Candidate& fastest(const SearchResult& result, bool even) {
  return *std::ranges::find_if(
      result.ranked, [&](const Candidate& row) { return (row.partition == "even") == even; });
}

/// What a V100 gets is what it can do while the others work. Of dense work it does less than half
/// as much. With one sample of a micro-batch on eight devices an A100 waits for its host: vTrain's
/// blocks on A100 took 3.7 to 5.0 ms with tp 8, whatever their work
/// (golden/measured/vtrain_single_node.csv). A V100 has more to do meanwhile, and the two are
/// nearer each other.
TEST(MixedClusters, SlowNodesGetFewerLayers) {
  double before = 1;
  for (const int micro_batch : {1, 4}) {
    const Job job = two_fast_nodes_and_a_slow_one(micro_batch);
    const SearchResult result = searched(job, 100, true);
    SCOPED_TRACE(micro_batch);
    ASSERT_FALSE(result.ranked.empty());
    const Candidate& balanced = fastest(result, false);
    const LayerCosts costs = costs_of_job(job, nullptr, 0)->layer_costs(balanced.parallel);
    const std::int64_t least = least_busiest_stage(costs);
    EXPECT_EQ(busiest_stage(costs, balanced.stages[1].first_layer, balanced.stages[2].first_layer),
              least);
    // 64 micro-batches: filling and draining, messages and updates add less than a tenth.
    EXPECT_GE(balanced.step.value, 64 * least);
    EXPECT_LE(balanced.step.value * 10, 64 * least * 11);
    // A third of the blocks on the slow node, against what all do together; whole blocks take a
    // tenth of the gain at most.
    const double slower = times_as_slow(costs), gain = slower * (2 + 1 / slower) / 3;
    EXPECT_GT(static_cast<double>(fastest(result, true).step.value),
              0.9 * gain * static_cast<double>(balanced.step.value));
    EXPECT_GT(slower, before);
    before = slower;
  }
  EXPECT_GT(before, 2);
}

/// A node of V100 with 16 GB beside one of A100 with 80: the larger one holds what the smaller
/// cannot, and the smaller one's limit is its own.
TEST(MixedClusters, EachRankHasTheMemoryOfItsOwnNodes) {
  Job job = random_job(1);
  job.architecture = gpt_architecture("gpt", 6144, 24, 48, 51200, 2048);
  job.model = model_of(*job.architecture);
  const Cluster large = cluster_preset("dgx-a100", 8), small = cluster_preset("dgx-v100", 8);
  job.cluster = large;
  job.cluster.kinds = {{1, large.device, large.inside, large.across},
                       {1, small.device, small.inside, small.across}};
  job.cluster.kinds.back().device.memory = Bytes(std::int64_t{16} << 30);
  summarise_kinds(job.cluster);
  job.global_batch = 32;
  job.strategy = {};
  job.strategy.pp_degree = {"2"};
  job.strategy.mp_degree = {"8"};
  job.strategy.schedule_mode = {"1f1b", "zb-1p", "zbv"};
  const SearchResult result = searched(job, 100, true);
  ASSERT_TRUE(result.best);
  const NodeRates small_node = machine_of(job.cluster).nodes.back();
  const Bytes of_small(static_cast<std::int64_t>(usable_bytes({}, small_node)));
  EXPECT_LT(of_small.value, std::int64_t{15} << 30);
  EXPECT_GT(result.ranked.front().peak_bytes, of_small);
  const auto costs = costs_of_job(job, nullptr, 0);
  EXPECT_EQ(result.rank_memory, costs->rank_memory(result.ranked.front().parallel));
  for (const Candidate& row : result.ranked) {
    const bool turned = !row.parallel.order.of_nodes.empty();
    const auto memory = costs->rank_memory(row.parallel);
    EXPECT_EQ(memory[turned ? 0 : 1], of_small);
    EXPECT_GT(memory[turned ? 1 : 0], of_small);
  }
  const Explanation over =
      explain(job, nullptr, 0, result, "micro_batch_size=8,partition=even,recompute=none");
  EXPECT_FALSE(over.is_possible);
  job.strategy.memory_limit = of_small;  // what the job says is of every rank
  for (const Candidate& row : searched(job, 100, true).ranked)
    EXPECT_LE(row.peak_bytes, of_small) << describe(row);
}

TEST(MixedClusters, SchedulesWithAStageOnSeveralRanksAreCountedAndExplained) {
  Job job = random_job(3);
  job.strategy.schedule_mode = {"chimera"};
  job.strategy.pp_degree = {"4"};
  job.strategy.mp_degree = job.strategy.dp_degree = {"1"};
  const SearchResult result = searched(job, 3, false);
  EXPECT_GT(by_sentence(result.pruned).at("stages on several ranks, which differ in speed"), 0);
  const Explanation why =
      explain(job, nullptr, 0, result, "schedule=chimera,pp=4,tp=1,dp=1,micro_batch_size=1");
  EXPECT_NE(why.sentences.back().find("a stage is on several ranks"), std::string::npos);
}

}  // namespace mixed_clusters_test
}  // namespace pipewright::planner
