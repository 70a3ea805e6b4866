// A training whose numbers stop being finite ends behind that step, in every kind of numerics, and
// says which number it was; what was saved before stays, and is finite.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "core/base/error.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/devices/cpu/kernels/finite.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/training_setting.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::tests {
namespace divergence_test {

using exec::Numerics;
using exec::Outcome;
using exec::RunResult;

constexpr int kSteps = 30;

/// Of a training with this learning rate, which must end by itself.
RunResult diverged(const Program& program, Setting& setting, double learning_rate) {
  setting.training.optimizer.kind = exec::OptimizerKind::Sgd;
  setting.training.optimizer.learning_rate = learning_rate;
  try {
    exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = kSteps});
  } catch (const exec::RunFailed& failed) {
    EXPECT_EQ(std::string(failed.what()).rfind("the training diverges: in step ", 0), 0U)
        << failed.what();
    return failed.result();
  }
  ADD_FAILURE() << "diverged in silence";
  return {};
}

struct DivergingCase {
  const char* name;
  Numerics numerics = Numerics::Fast;
  int replicas = 1;
  bool sharded = false, clips = false, asynchronous = false;
};

class Divergence : public testing::TestWithParam<DivergingCase> {
 protected:
  static Program program() {
    const DivergingCase& c = GetParam();
    const Order order =
        c.asynchronous ? test::pipedream_order(2, 4) : planner::make_order("1f1b", {2, 4, 1, {}});
    return lower(c.replicas > 1 ? planner::replicate(order, c.replicas) : order,
                 comm_policy_preset("torch"),
                 {.clips = c.clips, .optimizer = true, .sharded = c.sharded});
  }
};

TEST_P(Divergence, EndsBehindTheFirstStepThatIsNotFinite) {
  const Program program = this->program();
  Setting setting(program);
  setting.training.options.numerics = GetParam().numerics;
  if (GetParam().clips) setting.training.optimizer.clip_grad_norm = 1e30;  // has to look, no more
  const RunResult result = diverged(program, setting, 1e12);
  EXPECT_EQ(result.outcome, Outcome::Diverged);
  ASSERT_FALSE(result.steps.empty());
  ASSERT_LT(result.steps.size(), static_cast<std::size_t>(kSteps));
  for (std::size_t i = 0; i + 1 < result.steps.size(); ++i)
    EXPECT_TRUE(std::isfinite(result.steps[i].loss.value())) << "step " << i + 1;
  EXPECT_NE(result.failure.find("in step " + std::to_string(result.steps.size()) + " "),
            std::string::npos)
      << result.failure;
  EXPECT_EQ(result.timeline.end.size(), program.code.size());
}

/// The step before the one whose loss shows it: checkpoints of that one would hold the damage.
TEST_P(Divergence, LeavesOnlyFiniteCheckpoints) {
  const test::Folder folder;
  const Program program = this->program();
  Setting setting(program);
  setting.training.options.numerics = GetParam().numerics;
  if (GetParam().clips) setting.training.optimizer.clip_grad_norm = 1e30;
  setting.training.save =
      exec::CheckpointSpec{.folder = folder.path(), .every = 1, .keep = 0, .watch = {}};
  // An asynchronous step has several updates, and may be the first that is not finite.
  const RunResult result = diverged(program, setting, GetParam().asynchronous ? 5 : 1e6);
  const int finite = static_cast<int>(result.steps.size()) - 1;
  if (!GetParam().asynchronous) {
    ASSERT_GT(finite, 0);
  }
  for (int step = 1; step <= finite; ++step) {
    const auto checkpoint = exec::Checkpoint::open(exec::checkpoint_folder(folder.path(), step));
    exec::cpu::Stage stage(setting.model, 0, 8, kMicroBatchSize, 4, 7, setting.training.optimizer);
    for (const exec::StateView& view : stage.state()) {
      checkpoint.read(view.parameter, view.slot, view.values, view.first);
      EXPECT_TRUE(exec::cpu::all_finite(view.values)) << step << " " << view.parameter;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(exec::checkpoint_folder(folder.path(), finite + 1)));
}

constexpr auto kExact = Numerics::Exact;

INSTANTIATE_TEST_SUITE_P(
    Numerics, Divergence,
    testing::Values(
        DivergingCase{"fast"}, DivergingCase{"exact", kExact},
        DivergingCase{.name = "fast_replicas", .replicas = 2},
        DivergingCase{.name = "exact_replicas", .numerics = kExact, .replicas = 2},
        DivergingCase{.name = "fast_zero1", .replicas = 2, .sharded = true},
        DivergingCase{.name = "exact_zero1", .numerics = kExact, .replicas = 2, .sharded = true},
        DivergingCase{.name = "fast_clipped", .clips = true},
        DivergingCase{.name = "exact_clipped", .numerics = kExact, .clips = true},
        DivergingCase{.name = "fast_pipedream", .asynchronous = true},
        DivergingCase{.name = "exact_pipedream", .numerics = kExact, .asynchronous = true}),
    [](const auto& one) { return one.param.name; });

/// The loss is that of before the update: a gradient or a weight tells a step earlier.
TEST(Diverging, AnUpdateThatLeavesNoFiniteWeightsIsNamed) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program);
  const RunResult result = diverged(program, setting, 1e45);  // beyond the largest float
  EXPECT_EQ(result.steps.size(), 1U);
  EXPECT_TRUE(std::isfinite(result.steps.front().loss.value()));
  EXPECT_NE(result.failure.find("is not a finite number any more"), std::string::npos)
      << result.failure;
}

TEST(Diverging, AllFiniteSeesEveryPlace) {
  for (const std::size_t size : {1U, 15U, 16U, 17U, 100U}) {
    std::vector<float> values(size, 3e38F);
    EXPECT_TRUE(exec::cpu::all_finite(values));
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (std::size_t i = 0; i < size; ++i) {
        values[i] = bad;
        EXPECT_FALSE(exec::cpu::all_finite(values)) << size << " " << i;
        values[i] = -1;
      }
    }
  }
  EXPECT_TRUE(exec::cpu::all_finite({}));
}

TEST(OutcomesThatDiverge, RowsThatAreNotFiniteAreCountedAndNeverCorrect) {
  const std::vector<float> logits = {NAN, 1, 2, 0, 0, 1, INFINITY, 0, 0};
  const std::vector<std::int32_t> labels = {0, 2, 0};
  Model model = small_model();
  model.loss = LossKind::SoftmaxCrossEntropy;
  exec::Evaluation evaluation(model, exec::RunMode::Evaluate, 1, {});
  evaluation.put(
      0, {.terms = 3, .rows = exec::outcomes_of_rows(3, 3, logits.data(), labels), .outputs = {}});
  evaluation.end_step();
  EXPECT_EQ(evaluation.report().not_finite_rows, 2);
  EXPECT_EQ(evaluation.report().accuracy, 1.0 / 3);
}

}  // namespace divergence_test
}  // namespace pipewright::tests
