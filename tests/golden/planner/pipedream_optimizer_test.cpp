// PipeDream's published optimizer: the time of its slowest stage, on its own profiles.
#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "planner/graph_partition/pipedream_profile.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace pipedream_optimizer_test {

void expect_stages_cover(const planner::PipeDreamPlan& plan, int states, int machines) {
  int next = 0, used = 0;
  for (const planner::ReplicatedStage& stage : plan.stages) {
    EXPECT_EQ(stage.first, next);
    EXPECT_GT(stage.end, stage.first);
    next = stage.end;
    used += stage.replicas;
  }
  EXPECT_EQ(next, states);
  EXPECT_EQ(used, machines);
}

TEST(PipeDreamOptimizer, TheSlowestStageTakesThePublishedTime) {
  const auto folder = golden::golden_dir();
  PIPEWRIGHT_NEEDS_GOLDEN(folder / "pipedream_optimizer.json");
  const Json profiles =
      parse_json(golden::text_of(folder / "pipedream_profiles.json"), "pipedream_profiles.json");
  const JsonCursor file(profiles, "pipedream_profiles.json");
  ASSERT_TRUE(planner::is_pipedream_profile(file));
  int compared = 0;
  for (const Json& row :
       parse_json(golden::text_of(folder / "pipedream_optimizer.json"), "pipedream_optimizer")) {
    SCOPED_TRACE(row.dump());
    const auto profile =
        planner::read_pipedream_profile(file.at(row.at("model").get<std::string>()));
    std::vector<planner::NetworkLevel> levels;
    for (std::size_t level = 0; level < row.at("machines").size(); ++level) {
      levels.push_back({row.at("machines").at(level).get<int>(),
                        row.at("bandwidth_bytes_per_s").at(level).get<double>()});
    }
    const bool straight = row.at("straight_pipeline").get<bool>();
    const auto plan = planner::pipedream_partition(profile, levels, straight);
    const double published = row.at("per_stage_s").get<double>();
    EXPECT_NEAR(plan.slowest_stage_s, published, 1e-12 * (1 + published));
    expect_stages_cover(plan, static_cast<int>(profile.compute_until.size()),
                        levels.back().machines);
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

TEST(PipeDreamOptimizer, TwoEqualStatesOnTwoMachinesAreAStageEachWhenParametersAreHeavy) {
  planner::PipeDreamProfile profile;
  profile.compute_until = {1, 2};
  profile.parameters_until = {1000, 2000};
  profile.output_bytes = {0.1, 0};
  const auto plan = planner::pipedream_partition(profile, {{2, 1.0}}, false);
  EXPECT_DOUBLE_EQ(plan.slowest_stage_s, 1);
  EXPECT_EQ(plan.stages, (std::vector<planner::ReplicatedStage>{{0, 1, 1}, {1, 2, 1}}));
}

TEST(PipeDreamOptimizer, WithoutParametersOneStageIsReplicated) {
  planner::PipeDreamProfile profile;
  profile.compute_until = {1, 4};
  profile.parameters_until = {0, 0};
  profile.output_bytes = {0.1, 0};
  const auto plan = planner::pipedream_partition(profile, {{2, 1.0}}, false);
  EXPECT_DOUBLE_EQ(plan.slowest_stage_s, 2);
  EXPECT_EQ(plan.stages, (std::vector<planner::ReplicatedStage>{{0, 2, 2}}));
}

}  // namespace pipedream_optimizer_test
}  // namespace pipewright
