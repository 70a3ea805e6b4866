// A plan is predicted by the few of its replicas that show what all do: every figure of that is the
// one of simulating them all, on random jobs of both kinds.
#include <gtest/gtest.h>

#include "core/model/architecture_model.hpp"
#include "planner/bounds/layer_replicas.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/plan_of_candidate.hpp"
#include "planner/search/search.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace alike_replicas_test {

using test::Draw;

/// Nodes of one kind or of two, whose devices have ports of their own or share them.
Cluster random_cluster(Draw& draw, int devices) {
  Cluster cluster = cluster_preset(draw.one_of("dgx-a100", "dgx-h100"), 8);
  cluster.devices_per_node = draw.one_of(2, 4, 8);
  cluster.nodes = devices / cluster.devices_per_node;
  const Sharing sharing =
      draw.one_of(Sharing::None, Sharing::Serial, Sharing::Fair, Sharing::MaxMin);
  cluster.inside.sharing = draw.coin() ? sharing : Sharing::None;
  cluster.across.sharing = sharing;
  if (draw.below(4) == 0) cluster.network_ports = cluster.devices_per_node / 2;
  if (draw.below(4) > 0 || cluster.nodes < 2) return cluster;
  const int first = 1 + draw.below(cluster.nodes - 1);
  Cluster other = cluster_preset("dgx-v100", 8);
  if (sharing == Sharing::MaxMin) other.inside.sharing = other.across.sharing = sharing;
  cluster.kinds = {{first, cluster.device, cluster.inside, cluster.across},
                   {cluster.nodes - first, other.device, other.inside, other.across}};
  cluster.network_ports = 0;
  summarise_kinds(cluster);
  return cluster;
}

void ask_for_few_schedules(Draw& draw, Strategy& strategy) {
  for (int k = 0; k < 3; ++k) {
    strategy.schedule_mode.emplace_back(
        draw.one_of("1f1b", "interleaved", "zb-h1", "gpipe", "naive", "interleaved-zb"));
  }
  // Here two ranks of a replica have the same stages.
  if (draw.below(4) == 0) strategy.schedule_mode.emplace_back(draw.one_of("chimera", "dualpipev"));
}

Job estimated_job(std::uint32_t seed) {
  Draw draw(seed);
  Job job;
  const int heads = draw.one_of(8, 16);
  Architecture model =
      gpt_architecture("gpt", 64 * heads, draw.one_of(6, 7, 10), heads, 32000, 512);
  model.tied_head = draw.coin();
  job.architecture = model;
  job.model = model_of(model);
  job.cluster = random_cluster(draw, draw.one_of(16, 32, 64));
  job.global_batch = job.cluster.devices() * draw.one_of(1, 2, 3);
  job.training.clip_grad_norm = draw.below(3) == 0 ? 1 : 0;
  Strategy& strategy = job.strategy;
  ask_for_few_schedules(draw, strategy);
  strategy.pp_degree = {"1", "2", "3", "4", "6"};
  strategy.mp_degree = {"1", draw.one_of("1", "2")};
  strategy.micro_batch_size = {"1"};
  strategy.sharding_stage = {"0", draw.one_of("1", "2", "3")};
  if (draw.coin()) strategy.rank_order = {draw.one_of("tp-cp-dp-pp", "tp-cp-pp-dp")};
  if (draw.below(5) == 0) strategy.sharding_degree = 2;  // groups
  return job;
}

Job layered_job(std::uint32_t seed) {
  Draw draw(seed);
  Job job;
  job.model = model_preset(draw.one_of("resnet50", "gpt-tiny"));
  job.cluster = random_cluster(draw, draw.one_of(16, 32));
  job.cluster.across.bytes_per_second /= draw.one_of(1, 10);
  const int replicas = draw.one_of(2, 3, 4, 5, 6, 8);
  job.global_batch = replicas * draw.one_of(2, 4);
  job.training.clip_grad_norm = draw.below(5) == 0 ? 1 : 0;
  Strategy& strategy = job.strategy;
  ask_for_few_schedules(draw, strategy);
  strategy.pp_degree = {draw.one_of("1", "2", "3", "4", "5", "6")};
  strategy.dp_degree = {std::to_string(replicas)};
  if (draw.coin()) strategy.sharding_degree = replicas % 2 == 0 && draw.coin() ? 2 : replicas;
  if (draw.coin()) strategy.sharding_stage = {draw.one_of("1", "2", "3")};
  return job;
}

struct Compared {
  int by_two = 0, by_those_that_differ = 0, by_all = 0;
};

/// Every figure that a plan has, the ratio by its bits.
void expect_same(const Prediction& found, const Prediction& full) {
  EXPECT_EQ(found.step, full.step);
  EXPECT_EQ(found.bubble_ratio, full.bubble_ratio);
  EXPECT_EQ(found.peak_activations, full.peak_activations);
  EXPECT_EQ(found.peak_bytes, full.peak_bytes);
}

void compare(const Job& job, Compared& counts) {
  const auto costs = costs_of_job(job, nullptr, 0);
  const SearchResult result = test::searched(job, 6, false);
  for (const Candidate& row : result.ranked) {
    SCOPED_TRACE(describe(row));
    SearchResult one = result;
    one.ranked = {row};
    const Plan plan = plan_of_candidate(job, *costs, one, costs->memory_limit());
    Plan full = plan;
    full.predicted = {};
    ASSERT_EQ(fill_prediction(full).verdict, Verdict::Ok);
    expect_same(plan.predicted, full.predicted);
    const bool estimated = costs->is_estimated();
    const int few = estimated ? 2 : costs->simulated_replicas(row.parallel);
    if (few >= plan.program_replicas() || plan.sharding().groups > 1) {
      ++counts.by_all;
    } else {
      const bool differ = !estimated && replicas_that_differ(job.cluster, row.parallel) > 1;
      ++(differ ? counts.by_those_that_differ : counts.by_two);
    }
  }
}

TEST(AlikeReplicas, TwoShowAllOfAnEstimatedPlan) {
  Compared counts;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    compare(estimated_job(seed), counts);
  }
  EXPECT_GT(counts.by_two, 100);
  EXPECT_GT(counts.by_all, 5);
}

TEST(AlikeReplicas, ThoseThatDifferShowAllOfAPlanByLayers) {
  Compared counts;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    compare(layered_job(seed), counts);
  }
  EXPECT_GT(counts.by_two, 20);
  EXPECT_GT(counts.by_those_that_differ, 10);
  EXPECT_GT(counts.by_all, 50);  // other nodes, shared ports, clipping, groups
}

/// Of a plan for thousands of devices whose pipelines cross nodes differently from rank to rank,
/// neither the routes between all pairs of ranks nor all of its replicas are made.
TEST(AlikeReplicas, APlanForThousandsOfDevicesIsMadeOfItsPipeline) {
  Job job;
  job.architecture = architecture_preset("llama3-8b");
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset("dgx-h100", 4096);
  job.cluster.across.bytes_per_second = 25e9;  // less than one message has within a node
  job.global_batch = 4096;
  job.strategy.pp_degree = {"16"};
  job.strategy.mp_degree = {"1"};
  job.strategy.rank_order = {"tp-cp-pp-dp"};
  job.strategy.schedule_mode = {"1f1b"};
  const SearchResult result = test::searched(job, 1, false);
  ASSERT_TRUE(result.best);
  EXPECT_EQ(result.best->all_ranks(), 4096);
  EXPECT_EQ(result.best->costs.route_of_edge.size(), 16U * 16U);
  EXPECT_EQ(result.best->predicted.peak_bytes.size(), 4096U);
  const Json written = to_json(*result.best);
  // Two neighbours in a pipeline are on one node or on two; the second replica's are those of its
  // own ranks.
  EXPECT_EQ(written["costs"]["routes"].size() % 256, 0U);
  const auto of_second = written["costs"]["routes"][written["costs"]["routes"].size() / 256];
  EXPECT_EQ(of_second["from"].get<int>() / 16, 1);
  EXPECT_EQ(of_second["to"].get<int>() / 16, 1);
}

}  // namespace alike_replicas_test
}  // namespace pipewright::planner
