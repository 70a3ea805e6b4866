// A real, if tiny, language model learns under asynchronous orders.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/parity/training_setting.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::tests {
namespace learning_test {

TEST(LearningWithVersions, TheTinyTransformerLearnsTextWithOldWeights) {
  const Model model = model_preset("gpt-tiny");
  for (const Order& order : {test::pipedream_order(4, 8), test::double_buffered_order(4, 4, 2),
                             test::round_robin_order(8)}) {
    const Program program = lower(order, comm_policy_preset("torch"), {.optimizer = true});
    Setting setting(program, model);
    setting.training.optimizer = exec::optimizer_spec("adamw", 3e-3);
    const auto run =
        exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 12});
    ASSERT_TRUE(run.finished());
    const double guessing = std::log(256.0);
    EXPECT_LT(*run.steps.back().loss, guessing - 2);
    EXPECT_LT(*run.steps.back().loss, *run.steps.front().loss - 0.5);
  }
}

}  // namespace learning_test
}  // namespace pipewright::tests
