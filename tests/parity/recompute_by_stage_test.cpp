// A plan whose stages have each their own recompute, as the tuner chooses it under a memory limit:
// it trains with the bits of the serial run, and its ranks hold what it says.
#include <gtest/gtest.h>

#include <cmath>

#include "core/model/transformer.hpp"
#include "exec/data/data.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/search.hpp"
#include "tests/parity/outcome.hpp"

namespace pipewright::tests {
namespace recompute_by_stage_test {

/// Of the two, relative to what was measured; what docs/metrics.md promises.
constexpr double kMostApart = 0.05;

/// Little weight and much activation, four stages that hold four, three, two and one micro-batches.
Job job_of(const std::string& schedule, int chunks) {
  Job job;
  job.model.name = "transformer";
  job.model.layers = expand(
      {.hidden = 32, .layers = 10, .heads = 4, .ffn = 128, .vocabulary = 256, .sequence = 32});
  job.model.sequence = 32;
  job.cluster = cluster_preset("local-cpu", 4);
  job.global_batch = 32;
  job.strategy.pp_degree = {chunks > 1 ? "2" : "4"};
  job.strategy.accumulate_steps = {"8"};
  job.strategy.schedule_mode = {schedule};
  job.strategy.vpp_degree = {std::to_string(chunks)};
  job.training.steps = 2;
  return job;
}

Bytes peak_with(Job job, const char* recompute) {
  job.strategy.recompute = {recompute};
  return planner::search(job).ranked.front().peak_bytes;
}

struct Case {
  const char* schedule;
  int chunks;
  int percent;  // of the way from what full recompute needs to what none needs
};

class RecomputeByStage : public testing::TestWithParam<Case> {};

TEST_P(RecomputeByStage, TrainsWithTheBitsOfTheSerialRunInTheMemoryThatItSays) {
  Job job = job_of(GetParam().schedule, GetParam().chunks);
  const std::int64_t most = peak_with(job, "none").value, least = peak_with(job, "full").value;
  job.strategy.memory_limit = Bytes(least + (most - least) * GetParam().percent / 100);
  job.strategy.recompute = {"by_stage"};
  const planner::SearchResult result = planner::search(job);
  ASSERT_TRUE(result.best);
  const Plan plan = read_plan(JsonCursor(to_json(*result.best), "plan.json"));
  ASSERT_EQ(plan.training.recompute.kind, RecomputeSpec::Kind::Listed)
      << planner::describe(result.ranked.front());

  const Program program = planner::program_of_plan(plan);
  const auto data = exec::make_data(
      plan.model,
      {.samples = plan.micro_batch_size, .micro_batches = plan.micro_batches, .seed = 7},
      PIPEWRIGHT_SOURCE_DIR "/LICENSE");
  exec::cpu::Training training;
  training.model = &plan.model;
  training.stages = plan.stages;
  training.micro_batch_size = plan.micro_batch_size;
  training.micro_batches = plan.micro_batches;
  training.optimizer = exec::optimizer_spec(plan.training.optimizer, 1e-3);
  training.options.numerics = exec::Numerics::Exact;
  training.data = data.get();
  const Outcome expected = serial(training);  // keeps everything
  training.options.recompute = recompute_of(plan.model, plan.training.recompute);
  expect_equal(pipelined(program, training), expected);

  training.options.numerics = exec::Numerics::Fast;
  const auto held = exec::cpu::run_on_cpu(program, plan.costs, training, {.steps = 2}).peak_bytes;
  ASSERT_EQ(held.size(), plan.predicted.peak_bytes.size());
  for (std::size_t r = 0; r < held.size(); ++r) {
    const auto said = static_cast<double>(plan.predicted.peak_bytes[r].value);
    EXPECT_LE(std::abs(said / static_cast<double>(held[r]) - 1), kMostApart)
        << "rank " << r << " holds " << held[r] << ", the plan says " << said;
    EXPECT_LE(plan.predicted.peak_bytes[r], job.strategy.memory_limit);
  }
}

INSTANTIATE_TEST_SUITE_P(Tuned, RecomputeByStage,
                         testing::Values(Case{"1f1b", 1, 30}, Case{"1f1b", 1, 70},
                                         Case{"gpipe", 1, 40}, Case{"zb-h1", 1, 50},
                                         Case{"interleaved", 2, 50}, Case{"zbv", 2, 50}),
                         [](const auto& one) {
                           std::string name = one.param.schedule;
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name + "_" + std::to_string(one.param.percent);
                         });

}  // namespace recompute_by_stage_test
}  // namespace pipewright::tests
