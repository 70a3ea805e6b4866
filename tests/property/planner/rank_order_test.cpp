// The order of ranks on devices: what follows from it is counted again device by device on the
// plan's mesh, and what the search leaves out is held against simulating both orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "core/model/architecture_model.hpp"
#include "planner/branches/branch.hpp"
#include "planner/estimate/rank_places.hpp"
#include "planner/estimate/step_parts.hpp"
#include "planner/plans/difference.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace rank_order_test {

using test::searched;

constexpr RankOrder kOrders[] = {RankOrder::PipelineOutermost, RankOrder::DataOutermost};

Mesh mesh_of(const ParallelSetup& setup) {
  const auto grid =
      setup.order.of_ranks == RankOrder::DataOutermost ? Mesh::grid_of_replicas : Mesh::grid;
  return grid(setup.pipeline, setup.data, setup.context, setup.tensor);
}

ParallelSetup random_setup(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + static_cast<std::ptrdiff_t>(random() % list.size()));
  };
  ParallelSetup setup;
  setup.tensor = one_of({1, 2, 4, 8});
  setup.context = one_of({1, 1, 2});
  setup.data = one_of({1, 2, 3, 4, 8});
  setup.pipeline = one_of({1, 2, 3, 4, 8});
  setup.order.of_ranks = kOrders[random() % 2];
  return setup;
}

/// By replica and context rank, the device of tensor rank 0 of a pipeline rank. Row major.
std::vector<int> members_of(const Mesh& mesh, const ParallelSetup& setup, int rank) {
  const bool outside = setup.order.of_ranks == RankOrder::DataOutermost;
  std::vector<int> devices;
  for (int d = 0; d < setup.data; ++d) {
    for (int c = 0; c < setup.context; ++c) {
      const int place = outside ? d * setup.pipeline + rank : rank * setup.data + d;
      devices.push_back(
          mesh.devices[static_cast<std::size_t>((place * setup.context + c) * setup.tensor)]);
    }
  }
  return devices;
}

TEST(RankPlaces, AreThoseOfTheMesh) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const ParallelSetup setup = random_setup(random);
    const Mesh mesh = mesh_of(setup);
    const std::vector<int> firsts = mesh.devices_of_replicas();
    for (int d = 0; d < setup.data; ++d) {
      for (int r = 0; r < setup.pipeline; ++r)
        ASSERT_EQ(first_device(setup, r, d),
                  firsts[static_cast<std::size_t>(d * setup.pipeline + r)]);
    }
    const bool is_apart = setup.data > 1 && setup.pipeline > 1;
    EXPECT_EQ(mesh.has_pipeline_inside_data(),
              is_apart && setup.order.of_ranks == RankOrder::DataOutermost);
    for (const int per_node : {2, 4, 8}) {
      for (int r = 0; r + 1 < setup.pipeline; ++r) {
        bool inside = true;
        for (int d = 0; d < setup.data; ++d) {
          for (int k = 0; k < setup.tensor * setup.context; ++k) {
            inside = inside && (first_device(setup, r, d) + k) / per_node ==
                                   (first_device(setup, r + 1, d) + k) / per_node;
          }
        }
        EXPECT_EQ(share_nodes(setup, per_node, r, r + 1), inside);
      }
    }
  }
}

/// Where ranks fill nodes evenly, as they do on machines of powers of two.
TEST(RankPlaces, GroupsHaveAsManyMembersOnANodeAsTheMeshHas) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    ParallelSetup setup = random_setup(random);
    if (setup.data == 3) setup.data = 4;
    if (setup.pipeline == 3) setup.pipeline = 2;
    const Mesh mesh = mesh_of(setup);
    for (const int per_node : {2, 4, 8}) {
      std::map<int, int> on_node;
      for (const int device : members_of(mesh, setup, 0)) ++on_node[device / per_node];
      const Group group = replica_group(setup, per_node);
      ASSERT_EQ(group.members, setup.data * setup.context);
      if (group.members == 1) continue;
      if (on_node.size() > 1) {
        EXPECT_FALSE(group.inside(per_node));
        EXPECT_EQ(group.on_a_node(per_node), on_node.begin()->second);
      } else if (setup.devices() <= per_node) {
        EXPECT_TRUE(group.inside(per_node));
      }
    }
  }
}

Job random_job(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](auto... values) {
    const int list[] = {values...};
    return list[random() % std::size(list)];
  };
  const int heads = one_of(8, 16);
  Architecture model =
      gpt_architecture("gpt", 64 * heads, one_of(4, 7, 10), heads, 8000, one_of(512, 2048));
  model.tied_head = seed % 3 != 0;
  if (seed % 5 == 0) model.experts = {.count = 8, .chosen = 2, .ffn = model.ffn / 2};
  Job job;
  job.architecture = model;
  job.model = model_of(model);
  job.cluster = cluster_preset("dgx-a100", 16);
  job.cluster.devices_per_node = one_of(2, 4, 8);
  job.cluster.nodes = 16 / job.cluster.devices_per_node;
  job.cluster.across.bytes_per_second /= one_of(1, 10, 100);
  job.global_batch = one_of(8, 16, 32);
  Strategy& strategy = job.strategy;
  strategy.overlap_grad_reduce = random() % 2 == 0;
  strategy.micro_batch_size = {"1"};
  strategy.recompute = {"none"};
  strategy.use_sequence_parallel = {"false"};
  strategy.mp_degree = {"1", "2"};
  strategy.sharding_stage = {std::to_string(random() % 2)};
  const char* names[] = {"1f1b", "interleaved", "zbv", "zb-h1", "gpipe", "chimera"};
  for (int k = 0; k < 2; ++k) strategy.schedule_mode.emplace_back(names[random() % 6]);
  return job;
}

std::map<std::string, Nanoseconds> steps_in(Job job, RankOrder order) {
  job.strategy.rank_order = {std::string(name_of(order))};
  std::map<std::string, Nanoseconds> steps;
  for (Candidate& row : searched(job, 100000, true).ranked) {
    row.parallel.order.of_ranks = RankOrder::PipelineOutermost;
    steps[describe(row) + row.partition] = row.step;
  }
  return steps;
}

TEST(RankOrderSearch, FindsWhatSimulatingEverythingFindsAndCountsEachOnce) {
  int outermost = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Job job = random_job(seed);
    const SearchResult quick = searched(job, 4, false), all = searched(job, 4, true);
    SCOPED_TRACE(seed);
    test::expect_same_rows(quick, all);
    if (all.ranked.empty()) continue;
    outermost += all.ranked.front().parallel.order.of_ranks == RankOrder::DataOutermost ? 1 : 0;
    const Plan plan = test::expect_survives_its_file(quick);
    EXPECT_EQ(plan.mesh.has_pipeline_inside_data(),
              quick.ranked.front().parallel.order.of_ranks == RankOrder::DataOutermost);
  }
  EXPECT_GT(outermost, 1);
}

/// What is left out as the same or as no gain is that, and what both orders have is the best of
/// what each has.
TEST(RankOrderSearch, LeavesOutOnlyWhatCannotWin) {
  int same = 0, worse = 0, better = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const Job job = random_job(seed);
    const Machine machine = machine_of(job.cluster);
    Job inside = job;
    inside.strategy.rank_order = {"tp-cp-pp-dp"};
    const auto first = steps_in(job, RankOrder::PipelineOutermost);
    for (Candidate& row : searched(inside, 100000, true).ranked) {
      const OrderChoice choice = order_choice(machine, row.parallel);
      const Nanoseconds step = row.step;
      row.parallel.order.of_ranks = RankOrder::PipelineOutermost;
      const auto found = first.find(describe(row) + row.partition);
      ASSERT_NE(found, first.end()) << describe(row);
      if (choice == OrderChoice::Same) {
        EXPECT_EQ(step, found->second) << describe(row);
        ++same;
      } else if (choice == OrderChoice::Worse) {
        EXPECT_GE(step, found->second) << describe(row);
        ++worse;
      } else {
        better += step < found->second ? 1 : 0;
      }
    }
    const auto second = steps_in(job, RankOrder::DataOutermost);
    const SearchResult both = searched(job, 1, false);
    if (both.ranked.empty()) continue;
    Nanoseconds least = both.ranked.front().step;
    for (const auto& steps : {first, second}) {
      for (const auto& [what, step] : steps) EXPECT_GE(step, least) << seed << ": " << what;
    }
  }
  EXPECT_GT(same, 100);
  EXPECT_GT(better, 20);
}

TEST(RankOrderSearch, NoBoundExceedsWhatItBounds) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Job job = random_job(seed);
    if (seed % 4 == 0) {  // fewer micro-batches than ranks, gradients of weights beside the way
      job.global_batch = 2;
      job.strategy.schedule_mode = {"zb-h1", "zbv"};
    }
    const auto costs = costs_of_job(job, nullptr, 0);
    SCOPED_TRACE(seed);
    test::expect_bounds_hold(*costs, searched(job, 100000, true));
  }
}

/// Two devices a node and a slow network: replicas across nodes let each pair of neighbours share
/// one.
TEST(RankOrderSearch, NeighboursShareANodeWhereTheNetworkIsSlow) {
  Job job = random_job(1);
  job.cluster.devices_per_node = 2;
  job.cluster.nodes = 4;
  job.cluster.across.bytes_per_second = 1e8;
  job.global_batch = 64;
  Strategy& strategy = job.strategy;
  strategy.mp_degree = {"1"};
  strategy.pp_degree = {"2"};
  strategy.schedule_mode = {"1f1b"};
  const SearchResult found = searched(job, 5, false);
  ASSERT_TRUE(found.best);
  const Plan& plan = *found.best;
  EXPECT_EQ(plan.mesh.dim_names, (std::vector<std::string>{"dp", "pp"}));
  EXPECT_EQ(plan.mesh.devices_of_pipeline(), (std::vector<int>{0, 1}));
  EXPECT_EQ(found.ranked.front().parallel.order.of_ranks, RankOrder::DataOutermost);
  const auto other = explain(job, nullptr, 0, found, "rank_order=tp-cp-dp-pp");
  ASSERT_TRUE(other.candidate);
  EXPECT_GT(other.candidate->step, plan.predicted.step);
  Job asked = job;
  asked.strategy.rank_order = {"tp-cp-dp-pp"};
  const SearchResult fixed = searched(asked, 5, false);
  EXPECT_EQ(fixed.best->predicted.step, other.candidate->step);
  EXPECT_EQ(fixed.best->mesh.dim_names, (std::vector<std::string>{"pp", "dp"}));
  const auto words = plan_differences(plan, *fixed.best);
  EXPECT_NE(std::find(words.begin(), words.end(),
                      "rank order tp-cp-pp-dp (replicas outermost), then tp-cp-dp-pp (the pipeline "
                      "outermost)"),
            words.end());
}

TEST(RankOrderSearch, ExpertsThatReplicasDivideNeedThemSideBySide) {
  Job job = random_job(5);
  job.strategy.ep_degree = {"2"};
  job.strategy.pp_degree = {"2"};
  job.strategy.rank_order = {"tp-cp-pp-dp"};
  const SearchResult none = searched(job, 5, false);
  EXPECT_GT(by_sentence(none.pruned).at("ep with replicas outermost"), 0);
  EXPECT_FALSE(none.best);
}

}  // namespace rank_order_test
}  // namespace pipewright::planner
