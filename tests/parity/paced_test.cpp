// The conformance matrix on the paced device: what check calls fine finishes, what it calls stuck
// hangs at the same place; under the virtual clock every time is the simulator's.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/base/error.hpp"
#include "exec/devices/paced/device.hpp"
#include "sim/engine.hpp"
#include "tests/parity/run_case.hpp"

namespace pipewright::tests {
namespace paced_test {

using exec::Outcome;
using exec::RunResult;
using exec::local::ClockKind;
using exec::paced::run_paced;

std::string cycle_text(const Program& program, const WaitReport& report) {
  return std::string(to_string(report.verdict)) + "\n" + describe(program, report);
}

class Paced : public testing::TestWithParam<RunCase> {};

TEST_P(Paced, DoesWhatTheSimulatorSays) {
  const Program program = program_of(GetParam());
  const CostTable costs = costs_of(program, 1000);
  const sim::Result predicted = sim::simulate(program, costs);
  const RunResult run = run_paced(program, costs, ClockKind::Virtual, {.steps = 2});
  ASSERT_EQ(run.finished(), predicted.finished);
  EXPECT_EQ(run.timeline.start, predicted.timeline.start);
  EXPECT_EQ(run.timeline.end, predicted.timeline.end);
  if (run.finished()) {
    const Figures figures = figures_of(program, predicted.timeline, costs);
    EXPECT_EQ(run.figures.makespan_ns, figures.makespan_ns);
    EXPECT_EQ(run.figures.bubble_ratio, figures.bubble_ratio);
    EXPECT_EQ(run.steps.size(), 2U);
  } else {
    EXPECT_EQ(cycle_text(program, run.stuck), cycle_text(program, sim::check(program, costs)));
  }
}

TEST_P(Paced, FinishesOrHangsOnTheWallClockToo) {
  const Program program = program_of(GetParam());
  const CostTable costs = costs_of(program, 2000);
  const RunResult run = run_paced(program, costs, ClockKind::Wall, {.steps = 2});
  const WaitReport check = sim::check(program, costs);
  EXPECT_EQ(cycle_text(program, run.stuck), cycle_text(program, check));
  ASSERT_EQ(run.finished(), check.verdict == Verdict::Ok);
  // No action may be shorter than its cost; how much longer is the machine's affair.
  if (!run.finished()) return;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (is_transfer(program.code[id].kind)) continue;
    EXPECT_GE(run.timeline.end[id] - run.timeline.start[id], costs.duration(program, id).value);
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, Paced, testing::ValuesIn(all_run_cases()),
                         [](const auto& one) { return name_of(one.param); });

// --- The hang that Paddle had ---

struct PaddleSize {
  int ranks, micro_batches, chunks;
};

class PaddleHang : public testing::TestWithParam<PaddleSize> {
 protected:
  static Program program(const std::string& jobs) {
    const PaddleSize& size = GetParam();
    const Order order = planner::make_order("paddle-vpp", {.ranks = size.ranks,
                                                           .micro_batches = size.micro_batches,
                                                           .chunks = size.chunks,
                                                           .parameters = {{"jobs", jobs}}});
    return lower(order, comm_policy_preset("paddle-vpp"));
  }
};

TEST_P(PaddleHang, FusedJobsHangAndTheWatchdogNamesTheCycleOfCheck) {
  const Program fused = program("fused");
  const CostTable costs = costs_of(fused, 1000);
  const WaitReport check = sim::check(fused, costs);
  ASSERT_EQ(check.verdict, Verdict::Deadlock);
  ASSERT_FALSE(check.cycle.empty());
  for (const ClockKind clock : {ClockKind::Wall, ClockKind::Virtual}) {
    const RunResult run = run_paced(fused, costs, clock);
    EXPECT_EQ(run.outcome, Outcome::Stuck);
    EXPECT_EQ(cycle_text(fused, run.stuck), cycle_text(fused, check));
  }
}

TEST_P(PaddleHang, SplitJobsPass) {
  const Program split = program("split");
  for (const ClockKind clock : {ClockKind::Wall, ClockKind::Virtual}) {
    EXPECT_TRUE(run_paced(split, costs_of(split, 1000), clock).finished());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PaddleHang,
                         testing::Values(PaddleSize{4, 8, 2}, PaddleSize{4, 12, 2},
                                         PaddleSize{4, 16, 2}, PaddleSize{8, 16, 2},
                                         PaddleSize{4, 8, 4}, PaddleSize{3, 6, 2}));

// --- Ending a run from outside ---

TEST(PacedRun, AnInterruptEndsItWithWhatThereIs) {
  const Program program = program_of({"1f1b", 4, 8, 1, "torch"});
  const CostTable costs = costs_of(program, 50'000'000);  // seconds a step
  std::atomic<bool> interrupted{false};
  std::jthread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    interrupted = true;
  });
  const RunResult run =
      run_paced(program, costs, ClockKind::Wall, {.steps = 100, .interrupted = &interrupted});
  EXPECT_EQ(run.outcome, Outcome::Interrupted);
  EXPECT_EQ(run.timeline.start.size(), program.code.size());
  EXPECT_LT(run.steps.size(), 100U);
}

TEST(PacedRun, ASlowComputationIsNoDeadlock) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const CostTable costs = costs_of(program, 2'000'000'000);
  try {
    run_paced(program, costs, ClockKind::Wall, {.watchdog_ns = 50'000'000});
    FAIL() << "it cannot have finished";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0 in 0F0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--watchdog"), std::string::npos) << error.what();
  }
}

TEST(PacedRun, WhatOnStepThrowsComesOut) {
  const Program program = program_of({"gpipe", 4, 8, 1, "torch"});
  const auto on_step = [](int step, const exec::StepResult&) {
    if (step == 1) throw InputError("the disk is full");
  };
  EXPECT_THROW(
      run_paced(program, costs_of(program, 10), ClockKind::Wall, {.steps = 5, .on_step = on_step}),
      InputError);
}

/// Fails at one instruction, like a device that broke.
class BrokenDevice final : public exec::Device {
 public:
  void begin_step(int step) override { step_ = step; }
  void compute(InstructionId id) override {
    if (id == 2 && step_ == 1) throw std::runtime_error("it broke");
  }
  exec::PayloadPtr give(InstructionId) override {
    return std::make_unique<exec::HostPayload>(std::vector<float>(1));
  }
  void accept(InstructionId, exec::PayloadPtr) override {}
  void end_step() override {}

 private:
  int step_ = 0;
};

TEST(PacedRun, AFailureNamesRankInstructionAndStepAndStopsTheOthers) {
  const Program program = program_of({"gpipe", 4, 8, 1, "torch"});
  const CostTable costs = costs_of(program, 10);
  ASSERT_EQ(program.text(2), "0F1");  // rank 0: 0F0 0SEND_F0 0F1
  exec::local::LocalTransport transport(program, exec::local::real_messages(program, costs));
  try {
    exec::run(program, costs, transport,
              [](RankId, exec::Clock&) { return std::make_unique<BrokenDevice>(); }, {.steps = 3});
    FAIL() << "it cannot have finished";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "rank 0, 0F1, step 1: it broke");
  }
}

}  // namespace paced_test
}  // namespace pipewright::tests
