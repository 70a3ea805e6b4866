// A head that uses the embedding's table, which lies on another rank: bit for bit the serial run,
// which has one table.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/devices/paced/device.hpp"
#include "planner/plans/data_parallel.hpp"
#include "sim/engine.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::tests {
namespace tied_test {

using exec::Numerics;

Program tied(const Order& order, const char* policy, LowerOptions options = {}) {
  const Model model = tied_transformer();
  options.optimizer = true;
  options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
  return lower(order, comm_policy_preset(policy), options);
}

void expect_serial_bits(const Program& program, double clip_grad_norm = 0,
                        RecomputeSpec::Kind recompute = RecomputeSpec::Kind::None) {
  const Model model = tied_transformer();
  Setting setting(program, model);
  setting.training.options.numerics = Numerics::Exact;
  setting.training.options.recompute = recompute_of(model, {recompute, {}});
  setting.training.verified_steps = kSteps;
  setting.training.optimizer.clip_grad_norm = clip_grad_norm;
  expect_equal(pipelined(program, setting.training), serial(setting.training));
}

class Tied : public testing::TestWithParam<const planner::Schedule*> {};

TEST_P(Tied, TrainsAsTheSerialRunDoes) {
  const planner::Schedule& schedule = *GetParam();
  const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
  for (const int ranks : {1, 2, 4}) {
    const int m =
        schedule.name == "paddle-vpp" && ranks == 2 ? 0 : micro_batches_for(schedule, ranks);
    if (m == 0) continue;
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Order order = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
    expect_serial_bits(tied(order, policy));
    if (ranks != 2) continue;
    expect_serial_bits(tied(order, policy, {.clips = true}), 0.01);
    expect_serial_bits(tied(order, policy), 0, RecomputeSpec::Kind::Full);
    const Order replicas = planner::replicate(order, 2);
    expect_serial_bits(tied(replicas, policy));
    expect_serial_bits(tied(replicas, policy, {.clips = true, .sharded = true}), 0.01);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Tied, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(TiedHead, StaysWithinRoundingInFastNumerics) {
  const Program program = tied(planner::make_order("1f1b", {4, 8, 1, {}}), "torch");
  Setting setting(program, tied_transformer());
  setting.training.verified_steps = 2;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 2});
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6);
}

TEST(TiedHead, ChangesWhatIsLearned) {
  const Program program = tied(planner::make_order("1f1b", {2, 4, 1, {}}), "torch");
  Setting with(program, tied_transformer()), without(program, small_transformer());
  const Outcome one = serial(with.training), two = serial(without.training);
  EXPECT_NE(one.losses, two.losses);
  EXPECT_EQ(one.weights.size() + 1, two.weights.size());  // no matrix of the head's own
}

TEST(TiedHead, NeedsAProgramThatSumsItsTableAndASynchronousOrder) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program, tied_transformer());
  EXPECT_THROW(exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training), InputError);
  EXPECT_THROW(tied(test::pipedream_order(2, 4), "torch"), InputError);
}

TEST(TiedHead, IsTimedAlikeByTheSimulatorAndThePacedDevice) {
  for (const char* policy : {"torch", "ideal", "megatron-batched", "mpi-eager"}) {
    SCOPED_TRACE(policy);
    const Order order = planner::make_order("1f1b", {4, 8, 1, {}});
    const Program program = tied(planner::replicate(order, 2), policy, {.clips = true});
    CostTable costs = costs_of(program, 1000);
    costs.tied_bytes = Bytes(9000);
    const sim::Result predicted = sim::simulate(program, costs);
    ASSERT_TRUE(predicted.finished);
    const auto run =
        exec::paced::run_paced(program, costs, exec::local::ClockKind::Virtual, {.steps = 2});
    ASSERT_TRUE(run.finished());
    EXPECT_EQ(run.timeline.start, predicted.timeline.start);
    EXPECT_EQ(run.timeline.end, predicted.timeline.end);
  }
}

}  // namespace tied_test
}  // namespace pipewright::tests
