// Fewer replicas in the place of all, where replicas lie differently in their nodes: what the
// search finds with those that differ is what all of them take.
#include "planner/bounds/layer_replicas.hpp"

#include <gtest/gtest.h>

#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace layer_replicas_test {

Job job_on_nodes_of_four(int ranks, int replicas, const char* schedule, bool sharded) {
  Job job;
  job.model = model_preset("resnet50");
  job.cluster = cluster_preset("dgx-a100");
  job.cluster.nodes = 12;
  job.cluster.devices_per_node = 4;
  job.cluster.across.bytes_per_second /= 10;
  job.global_batch = 8 * replicas;
  job.strategy.pp_degree = {std::to_string(ranks)};
  job.strategy.dp_degree = {std::to_string(replicas)};
  job.strategy.schedule_mode = {schedule};
  if (sharded) job.strategy.sharding_degree = replicas;
  return job;
}

TEST(LayerReplicas, ThoseThatDifferTakeTheTimeOfAll) {
  for (const char* schedule : {"1f1b", "interleaved", "gpipe", "zb-h1", "naive"}) {
    for (const int ranks : {2, 3, 4, 5, 6}) {
      SCOPED_TRACE(std::string(schedule) + " on " + std::to_string(ranks));
      const Job job = job_on_nodes_of_four(ranks, 8, schedule, ranks == 3);
      const auto costs = costs_of_job(job, nullptr, 0);
      const SearchResult result = test::searched(job, 3, false);
      ASSERT_FALSE(result.ranked.empty());
      // Of six ranks every second replica begins in the middle of a node, of three and five each
      // of four somewhere else.
      const int differ = ranks % 2 == 1 ? 4 : 2;
      EXPECT_EQ(costs->simulated_replicas(result.ranked.front().parallel), differ);
      // The plan's Program has all of them.
      const Plan plan = test::expect_survives_its_file(result);
      EXPECT_EQ(plan.replicas(), 8);
      EXPECT_EQ(plan.predicted.bubble_ratio, result.ranked.front().bubble_ratio);
      EXPECT_EQ(plan.predicted.peak_activations, result.ranked.front().peak_activations);
    }
  }
}

TEST(LayerReplicas, BoundsHoldByTheClustersOwnPricesToo) {
  for (const bool sharded : {false, true}) {
    for (const int ranks : {1, 2, 3, 6}) {
      SCOPED_TRACE(std::to_string(ranks) + (sharded ? " sharded" : ""));
      Job job = job_on_nodes_of_four(ranks, 8, "1f1b", sharded);
      job.strategy.schedule_mode = {"1f1b", "gpipe"};
      const auto by_ring = test::searched(job, 8, true);
      // Slower than rings over the ports, and faster.
      for (const double rate : {2e9, 2e13}) {
        job.cluster.collectives = CollectiveModel{.launch_ns = 5e3,
                                                  .step_ns = 1e3,
                                                  .bytes_per_second = rate,
                                                  .across_step_ns = 1e3,
                                                  .across_bytes_per_second = rate,
                                                  .source = "a test"};
        const auto all = test::searched(job, 8, true);
        test::expect_same_rows(test::searched(job, 8, false), all);
        test::expect_bounds_hold(*costs_of_job(job, nullptr, 0), all);
        test::expect_survives_its_file(all);
        EXPECT_EQ(all.ranked.front().step<by_ring.ranked.front().step, rate> 1e12);
      }
    }
  }
}

TEST(LayerReplicas, AreCountedUntilTheirNodesLieAsBefore) {
  const auto differ = [](int nodes, int per_node, int ranks, int replicas) {
    Cluster cluster = cluster_preset("dgx-a100");
    cluster.nodes = nodes;
    cluster.devices_per_node = per_node;
    ParallelSetup mesh;
    mesh.pipeline = ranks;
    mesh.data = replicas;
    return replicas_that_differ(cluster, mesh);
  };
  EXPECT_EQ(differ(1, 8, 3, 2), 1);
  EXPECT_EQ(differ(8, 8, 4, 16), 1);
  EXPECT_EQ(differ(8, 8, 16, 4), 1);
  EXPECT_EQ(differ(8, 8, 12, 4), 2);
  EXPECT_EQ(differ(8, 8, 6, 8), 4);
  EXPECT_EQ(differ(8, 8, 3, 16), 8);
  EXPECT_EQ(differ(8, 8, 3, 5), 5);
}

}  // namespace layer_replicas_test
}  // namespace pipewright::planner
