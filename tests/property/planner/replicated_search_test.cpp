// The tuner where stages have replicas: the search with its bounds against the search without, on
// random jobs of both sources of costs that are small enough to simulate everything, and each bound
// against what it bounds.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>

#include "core/model/architecture_model.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace replicated_search_test {

using test::Draw;
using test::searched;

void draw_nodes(Cluster& cluster, Draw& random) {
  if (random.coin()) return;
  cluster.nodes = random.one_of(2, 4);
  cluster.devices_per_node = 8 / cluster.nodes;
  cluster.across.bytes_per_second /= random.one_of(1, 20);
}

/// Nodes of two kinds: where a stage's ranks differ in speed, it has no one time.
void draw_kinds(Cluster& cluster, Draw& random) {
  const Cluster other = cluster_preset("dgx-v100");
  for (const Cluster* one : std::array<const Cluster*, 2>{&cluster, &other})
    cluster.kinds.push_back({1, one->device, one->inside, one->across});
  cluster.devices_per_node = random.one_of(2, 4);
  summarise_kinds(cluster);
}

Job layered_job(Draw& random) {
  Job job;
  job.model = model_preset(random.one_of("gpt-tiny", "mlp", "resnet-tiny"));
  job.cluster = cluster_preset(random.one_of("dgx-a100", "dgx-h100"), 8);
  job.training.optimizer = random.one_of("adamw", "sgd");
  if (random.below(3) == 0) job.strategy.recompute = {"none", "by_stage"};
  if (random.below(3) == 0) job.cluster.device.memory = Bytes(random.one_of(1, 4, 16) << 20);
  return job;
}

Job estimated_job(Draw& random) {
  Job job;
  const int heads = random.one_of(8, 16, 32);
  Architecture model =
      gpt_architecture("gpt", 64 * heads, random.one_of(4, 6, 7), heads, 32000, 512);
  model.tied_head = random.below(5) == 0;
  job.architecture = model;
  job.model = model_of(model);
  job.cluster = cluster_preset(random.one_of("dgx-a100", "dgx-h100"), 8);
  job.cluster.device.memory = Bytes(job.cluster.device.memory.value / random.one_of(1, 8, 20));
  if (random.coin()) job.strategy.mp_degree = {"1", "2"};
  if (random.coin()) job.strategy.recompute = {"none", "by_stage"};
  job.strategy.dp_degree = {"1", "2"};
  return job;
}

Job random_job(std::uint32_t seed) {
  Draw random(seed);
  Job job = seed % 2 == 0 ? layered_job(random) : estimated_job(random);
  draw_nodes(job.cluster, random);
  if (seed % 8 == 1) draw_kinds(job.cluster, random);
  job.global_batch = random.one_of(4, 6, 8, 12);
  Strategy& strategy = job.strategy;
  strategy.pp_degree = {"1", "2", random.one_of("3", "4"), random.one_of("5", "8")};
  if (random.coin()) strategy.micro_batch_size = {"1", "2"};
  strategy.schedule_mode = {"1f1b-rr"};
  if (random.below(4) == 0) {
    strategy.stage_replicas = {{2, 1}, {1, 2, 1}, {1, 1}};
  } else if (random.coin()) {
    strategy.schedule_mode.emplace_back(random.one_of("1f1b", "pipedream", "chimera"));
  }
  return job;
}

bool has_replicas(const Candidate& row) {
  const auto& replicas = row.parallel.stage_replicas;
  return !replicas.empty() && *std::max_element(replicas.begin(), replicas.end()) > 1;
}

TEST(ReplicatedSearch, FindsWhatSimulatingEverythingFinds) {
  int found = 0, with_replicas = 0;
  std::int64_t simulated = 0, of_all = 0;
  for (std::uint32_t seed = 0; seed < 70; ++seed) {
    const Job job = random_job(seed);
    const SearchResult quick = searched(job, 3, false), all = searched(job, 3, true);
    SCOPED_TRACE(seed);
    test::expect_same_rows(quick, all);
    found += all.ranked.empty() ? 0 : 1;
    with_replicas += !all.ranked.empty() && has_replicas(all.ranked.front()) ? 1 : 0;
    simulated += quick.evaluated;
    of_all += all.evaluated;
  }
  EXPECT_GT(found, 50);
  EXPECT_GT(with_replicas, 8);
  EXPECT_LT(simulated, of_all);
}

TEST(ReplicatedSearch, NoBoundExceedsWhatItBounds) {
  int compared = 0;
  for (std::uint32_t seed = 100; seed < 122; ++seed) {
    const Job job = random_job(seed);
    const auto costs = costs_of_job(job, nullptr, 0);
    std::set<std::string> seen;
    for (const Candidate& row : searched(job, 100000, true).ranked) {
      SCOPED_TRACE(seed);
      test::expect_bounds_hold(*costs, row);
      EXPECT_TRUE(seen.insert(describe(row) + row.partition).second) << "counted twice";
      compared += has_replicas(row) ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(ReplicatedSearch, APlanIsPredictedAsItWasSearchedAndSurvivesItsFile) {
  int with_replicas = 0;
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const SearchResult result = searched(random_job(seed), 2, false);
    if (!result.best) continue;
    SCOPED_TRACE(seed);
    const Plan plan = test::expect_survives_its_file(result);
    const auto& replicas = result.ranked.front().parallel.stage_replicas;
    if (replicas.empty()) continue;
    EXPECT_EQ(plan.schedule.parameters.at("replicas"), replicas_text(replicas));
    EXPECT_EQ(plan.ranks(), std::accumulate(replicas.begin(), replicas.end(), 0));
    ++with_replicas;
  }
  EXPECT_GT(with_replicas, 20);
}

TEST(ReplicatedSearch, ThreadsChangeNothing) {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const SearchResult one = searched(random_job(seed), 5, false, 1),
                       many = searched(random_job(seed), 5, false, 5);
    test::expect_same_search(one, many);
  }
}

/// A search that goes on from its journal knows each replication by its own line.
TEST(ReplicatedSearch, AJournalTellsReplicationsApart) {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const Job job = random_job(seed);
    SearchJournal journal;
    std::size_t added = 0;
    journal.add = [&](const std::string& configuration, const std::string& record) {
      ++added;
      journal.known[configuration] = record;
    };
    SearchOptions options = test::search_options(5, true);
    options.journal = &journal;
    const SearchResult first = search(job, nullptr, options);
    EXPECT_EQ(journal.known.size(), added);
    const SearchResult again = search(job, nullptr, options);
    test::expect_same_search(first, again);
    EXPECT_EQ(journal.known.size(), added);
  }
}

}  // namespace replicated_search_test
}  // namespace pipewright::planner
