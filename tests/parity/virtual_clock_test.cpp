// Training under the virtual clock: each computation takes the CPU time that it used, and queues,
// credit, transfers and the makespan follow from these durations to the nanosecond.
#include <gtest/gtest.h>

#include "exec/base/waiting.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/metered/device.hpp"
#include "sim/engine.hpp"
#include "tests/parity/training_setting.hpp"

namespace pipewright::tests {
namespace virtual_clock_test {

using exec::RunResult;
using exec::local::ClockKind;

std::vector<std::int64_t> measured_ns(const Timeline& timeline) {
  std::vector<std::int64_t> durations;
  for (std::size_t id = 0; id < timeline.end.size(); ++id)
    durations.push_back(timeline.end[id] - timeline.start[id]);
  return durations;
}

class VirtualClock : public testing::TestWithParam<RunCase> {};

TEST_P(VirtualClock, TheTimelineIsThatOfTheMeasuredDurations) {
  const Program program = program_of(GetParam());
  const CostTable costs = costs_of(program, 1000);
  const bool fine = sim::check(program, costs).verdict == Verdict::Ok;
  Setting setting(program);
  setting.training.clock = ClockKind::Virtual;
  setting.training.verified_steps = 1;
  const auto run = exec::cpu::run_on_cpu(program, costs, setting.training, {.steps = 2});
  ASSERT_EQ(run.finished(), fine);
  if (!fine) return;
  const std::vector<std::int64_t> measured = measured_ns(run.timeline);
  const sim::Result expected = sim::simulate(program, costs, {.compute_ns = measured});
  ASSERT_TRUE(expected.finished);
  EXPECT_EQ(run.timeline.start, expected.timeline.start);
  EXPECT_EQ(run.timeline.moving, expected.timeline.moving);
  EXPECT_EQ(run.timeline.end, expected.timeline.end);
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.code[id].is_communication()) continue;
    EXPECT_GT(run.timeline.end[id], run.timeline.start[id]) << program.text(id);
  }
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
}

std::vector<RunCase> cases() {
  std::vector<RunCase> cases;
  for (const char* policy : {"ideal", "torch", "megatron-batched", "mpi-eager"}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "chimera"}) {
      cases.push_back({schedule, 8, 8, 1, policy});
    }
    cases.push_back({"interleaved", 4, 8, 2, policy});
    cases.push_back({"dualpipev", 4, 8, 2, policy});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Matrix, VirtualClock, testing::ValuesIn(cases()),
                         [](const auto& one) { return name_of(one.param); });

/// Uses a core for some time and then lies idle for much longer.
class WorkingDevice final : public exec::Device {
 public:
  explicit WorkingDevice(std::vector<std::int64_t>& used) : used_(used) {}
  void begin_step(int) override {}
  void compute(InstructionId id) override {
    const std::int64_t begin = exec::local::thread_cpu_ns();
    while (exec::local::thread_cpu_ns() - begin < 1'000'000) {
    }
    exec::local::sleep_until_steady(exec::local::steady_ns() + 20'000'000);
    used_[id] = exec::local::thread_cpu_ns() - begin;
  }
  exec::PayloadPtr give(InstructionId) override {
    return std::make_unique<exec::HostPayload>(std::vector<float>(1));
  }
  void accept(InstructionId, exec::PayloadPtr) override {}
  void end_step() override {}

 private:
  std::vector<std::int64_t>& used_;
};

TEST(VirtualClock, ChargesWhatAThreadUsedOfACoreAndNotWhatItWaited) {
  const Program program = program_of({"gpipe", 2, 2, 1, "ideal"});
  const CostTable costs = costs_of(program, 1000);
  std::vector<std::int64_t> used(program.code.size(), 0);
  std::mutex turn;
  exec::local::LocalTransport transport(program, exec::local::paced_messages(program, costs),
                                        ClockKind::Virtual);
  const exec::DeviceFactory make = [&](RankId rank, exec::Clock& clock) {
    return std::make_unique<exec::local::MeteredDevice>(std::make_unique<WorkingDevice>(used), rank,
                                                        clock, turn);
  };
  const RunResult run = exec::run(program, costs, transport, make, {.steps = 1});
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (is_transfer(program.code[id].kind)) continue;
    const std::int64_t charged = run.timeline.end[id] - run.timeline.start[id];
    EXPECT_GE(charged, used[id]) << program.text(id);
    // Beyond it only the reading of the clocks; far less than the idle time.
    EXPECT_LT(charged, used[id] + 10'000'000) << program.text(id);
  }
}

}  // namespace virtual_clock_test
}  // namespace pipewright::tests
