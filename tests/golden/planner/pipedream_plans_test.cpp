// PipeDream's published plans of the chains it has profiled (VGG-16, AlexNet) against what the
// tuner chooses for the same profile, links and number of machines: in the simulator, the judge of
// both, the tuner's is never slower.
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/json.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace pipedream_plans_test {

using planner::Candidate;

constexpr int kCores = 64;

struct PublishedPlan {
  std::vector<StagePlan> stages;
  std::vector<int> replicas;
};

PublishedPlan published(const Json& row) {
  PublishedPlan plan;
  int rank = 0;
  for (const Json& stage : row.at("stages")) {
    plan.stages.push_back({stage.at(0).get<int>(), stage.at(1).get<int>(), RankId(rank)});
    plan.replicas.push_back(stage.at(3).get<int>());
    rank += plan.replicas.back();
  }
  return plan;
}

struct Chain {
  Job job;
  Profile profile;
};

/// Of a layer's time, which the profile has as one number, a third is its F.
Chain chain_of(const Json& states, const Json& row, int micro_batches) {
  Chain chain;
  Job& job = chain.job;
  job.model.name = row.at("model").get<std::string>();
  job.model.loss = LossKind::Mse;
  ProfileSize size;
  size.micro_batch_size = 1;
  double compute_before = 0, bytes_before = 0;
  for (std::size_t l = 0; l < states.at("cumulative_compute_s").size(); ++l) {
    const double compute = states.at("cumulative_compute_s").at(l).get<double>();
    const double bytes = states.at("cumulative_parameter_bytes").at(l).get<double>();
    const auto third = static_cast<std::int64_t>(std::max(0.0, compute - compute_before) * 1e9 / 3);
    Layer& layer = job.model.layers.emplace_back();
    layer.name = "state" + std::to_string(l);
    layer.kind = LayerKind::Custom;
    layer.in = l == 0 ? 1 : job.model.layers[l - 1].out;
    layer.out = static_cast<int>(states.at("output_activation_bytes").at(l).get<double>() / 4);
    layer.custom = {"profiled", {}, static_cast<std::int64_t>((bytes - bytes_before) / 4), 0};
    size.layers.push_back({Nanoseconds(third), Nanoseconds(third), Nanoseconds(third), {}});
    compute_before = compute;
    bytes_before = bytes;
  }
  const int machines = row.at("machines").at(0).get<int>();
  job.cluster = cluster_preset("local-cpu", machines);
  job.cluster.device.memory = Bytes(0);
  job.global_batch = micro_batches;
  job.strategy.pp_degree = {std::to_string(machines)};
  job.strategy.micro_batch_size = {"1"};
  job.strategy.schedule_mode = {"1f1b-rr"};
  job.training.optimizer = "sgd";
  chain.profile.model_name = job.model.name;
  chain.profile.cluster = job.cluster;
  chain.profile.transfer_bytes_per_second = row.at("bandwidth_bytes_per_s").at(0).get<double>();
  chain.profile.sizes = {size};
  return chain;
}

Nanoseconds step_of(const Chain& chain, const PublishedPlan& plan) {
  const auto costs = planner::costs_of_job(chain.job, &chain.profile, kCores);
  planner::Configuration configuration;
  configuration.schedule = &planner::find_schedule("1f1b-rr");
  configuration.parallel.pipeline = std::accumulate(plan.replicas.begin(), plan.replicas.end(), 0);
  configuration.parallel.micro_batches = chain.job.global_batch;
  configuration.parallel.stage_replicas = plan.replicas;
  const planner::Branch branch{configuration,
                               std::make_shared<const std::vector<StagePlan>>(plan.stages), 0};
  const auto evaluation = planner::evaluate(chain.job, *costs, branch, Bytes(0));
  EXPECT_FALSE(evaluation.pruned);
  return evaluation.candidate.step;
}

TEST(PipeDreamPlans, TheTunersAreNoSlowerOnPipeDreamsOwnProfiles) {
  const auto folder = golden::golden_dir();
  PIPEWRIGHT_NEEDS_GOLDEN(folder / "pipedream_optimizer.json");
  const Json profiles =
      parse_json(golden::text_of(folder / "pipedream_profiles.json"), "pipedream_profiles.json");
  int compared = 0, with_replicas = 0;
  for (const Json& row :
       parse_json(golden::text_of(folder / "pipedream_optimizer.json"), "pipedream_optimizer")) {
    const Json& states = profiles.at(row.at("model").get<std::string>());
    const bool is_chain = states.at("predecessors").is_string();
    if (!is_chain || row.at("machines").size() > 1) continue;
    const PublishedPlan plan = published(row);
    int each = row.at("machines").at(0).get<int>();
    for (const int count : plan.replicas) each = std::lcm(each, count);
    const int micro_batches = each * std::max(1, 192 / each);
    const Chain chain = chain_of(states, row, micro_batches);
    planner::SearchOptions options;
    options.cores = kCores;
    const auto result = planner::search(chain.job, &chain.profile, options);
    ASSERT_FALSE(result.ranked.empty());
    const Candidate& best = result.ranked.front();
    const Nanoseconds theirs = step_of(chain, plan);
    const std::string text = row.at("model").get<std::string>() + " on " +
                             std::to_string(best.parallel.pipeline) + ": " +
                             planner::replicas_text(best.parallel.stage_replicas) + " " +
                             format_duration(best.step) + ", published " +
                             planner::replicas_text(plan.replicas) + " " + format_duration(theirs);
    RecordProperty(std::to_string(compared), text);
    EXPECT_LE(best.step, theirs) << text;
    ++compared;
    with_replicas += best.parallel.stage_replicas.front() > 1 ? 1 : 0;
  }
  EXPECT_GE(compared, 5);
  EXPECT_GE(with_replicas, 3);
}

}  // namespace pipedream_plans_test
}  // namespace pipewright
