// Runs that do not finish: a rank that dies, one that does not come back, an order that hangs, ends
// that do not match. The report has to tell them apart, on both clocks, and every rank has to be
// home soon.
#include "exec/runtime/runtime.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/local/transport.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/support/faulty_device.hpp"

namespace pipewright::exec {
namespace runtime_test {

using local::ClockKind;
using std::chrono::milliseconds;
using test::Fault;
using test::FaultyDevice;

constexpr std::int64_t kMs = 1'000'000;

Program program_of(std::string_view schedule, int ranks, int micro_batches) {
  return lower(planner::make_order(
                   schedule,
                   {.ranks = ranks, .micro_batches = micro_batches, .chunks = 1, .parameters = {}}),
               CommPolicy{});
}

CostTable each_takes(const Program& program, std::int64_t ns) {
  const Nanoseconds time(ns);
  return CostTable::uniform(program.stages, {.f = time, .i = time, .w = time, .b = time, .opt = {}},
                            Nanoseconds(0));
}

struct Ended {
  RunResult result;
  std::int64_t took_ms = 0;

  RankState state(std::size_t rank) const { return result.report.ranks.at(rank).state; }
};

struct Faulty {
  const Program& program;
  InstructionId where = kNoInstruction;
  Fault fault = Fault::Throws;
  ClockKind clock = ClockKind::Wall;
  RunOptions options;
  std::int64_t action_ns = 1000;
};

Ended end_of(Faulty faulty) {
  std::atomic<bool> let_go{false};
  const Program& program = faulty.program;
  const CostTable costs = each_takes(program, faulty.action_ns);
  local::LocalTransport transport(program, local::paced_messages(program, costs), faulty.clock);
  const DeviceFactory make = [&](RankId rank, Clock& clock) {
    return std::make_unique<FaultyDevice>(
        std::make_unique<paced::Device>(program, costs, rank, clock), faulty.where, faulty.fault,
        let_go);
  };
  if (!faulty.options.on_overdue) {
    faulty.options.grace_ns = 50 * kMs;
    faulty.options.on_overdue = [&](const RunResult&) { let_go = true; };
  }
  const auto begin = std::chrono::steady_clock::now();
  Ended ended;
  try {
    ended.result = run(program, costs, transport, make, faulty.options);
  } catch (const RunFailed& failed) {
    ended.result = failed.result();
    EXPECT_EQ(ended.result.failure, failed.what());
  }
  ended.took_ms =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin).count();
  return ended;
}

InstructionId instruction(const Program& program, const std::string& text) {
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.text(id) == text) return id;
  }
  ADD_FAILURE() << "no " << text;
  return kNoInstruction;
}

std::string text_of(const Program& program, InstructionId id) {
  return id == kNoInstruction ? "-" : program.text(id);
}

class OnClock : public testing::TestWithParam<ClockKind> {};
INSTANTIATE_TEST_SUITE_P(Clocks, OnClock, testing::Values(ClockKind::Wall, ClockKind::Virtual),
                         [](const auto& one) {
                           return one.param == ClockKind::Wall ? "Wall" : "Virtual";
                         });

TEST_P(OnClock, ARankWhoseDeviceThrowsIsDeadAndTheOthersAreNot) {
  const Program program = program_of("1f1b", 4, 8);
  const InstructionId where = instruction(program, "2F3");
  const Ended ended = end_of({.program = program, .where = where, .clock = GetParam()});
  EXPECT_EQ(ended.result.outcome, Outcome::Failed);
  EXPECT_EQ(ended.result.failure, "rank 2, 2F3, step 0: the device fell off the bus");
  ASSERT_EQ(ended.result.report.ranks.size(), 4U);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(ended.state(r) == RankState::Dead, r == 2) << to_string(ended.state(r));
    EXPECT_NE(ended.state(r), RankState::Stuck);
    EXPECT_NE(ended.state(r), RankState::Slow);
  }
  const RankReport& dead = ended.result.report.ranks[2];
  EXPECT_EQ(text_of(program, dead.first_unfinished), "2F3");
  ASSERT_FALSE(dead.recent.empty());
  EXPECT_EQ(dead.recent.back().instruction, where);
  EXPECT_EQ(dead.recent.back().state, FlightState::Started);
  EXPECT_LT(ended.took_ms, 1000);
}

TEST_P(OnClock, ARankThatDoesNotComeBackIsSlowAndThoseThatWaitForItAreNotStuck) {
  const Program program = program_of("1f1b", 4, 8);
  const InstructionId where = instruction(program, "1F2");
  const Ended ended = end_of({.program = program,
                              .where = where,
                              .fault = Fault::WorksOn,
                              .clock = GetParam(),
                              .options = {.watchdog_ns = 200 * kMs}});
  EXPECT_EQ(ended.result.outcome, Outcome::Slow);
  EXPECT_NE(ended.result.failure.find("rank 1 in 1F2"), std::string::npos);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(ended.state(r), r == 1 ? RankState::Slow : RankState::Waiting) << r;
  }
  const RankReport& slow = ended.result.report.ranks[1];
  EXPECT_EQ(text_of(program, slow.first_unfinished), "1F2");
  EXPECT_EQ(text_of(program, slow.last_finished), "1F1");
  // It has computed for all of the patience, and the others have waited hardly less.
  EXPECT_GE(slow.idle_ns, 200 * kMs);
  EXPECT_LT(slow.idle_ns, 1000 * kMs);
  // On the virtual clock, rank 2 may also be asleep: time stands still while rank 1 works.
  if (GetParam() == ClockKind::Wall) {
    EXPECT_EQ(text_of(program, ended.result.report.ranks[2].waits_for), "1SEND_F2");
  }
  EXPECT_GE(ended.result.report.ranks[2].idle_ns, 150 * kMs);
  EXPECT_LT(ended.took_ms, 200 + 1000);  // deadline and grace; then the test lets it go
}

TEST(Overdue, TheCallerLearnsOfARankThatDoesNotComeHomeAndMayLeave) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "leaves a thread behind on purpose, which ThreadSanitizer reports";
#endif
  const Program program = program_of("gpipe", 2, 2);
  const auto leave = [&] {
    end_of({.program = program,
            .where = instruction(program, "0F1"),
            .fault = Fault::WorksOn,
            .options = {.watchdog_ns = 100 * kMs, .on_overdue = [](const RunResult& result) {
                          const bool told = result.outcome == Outcome::Slow &&
                                            result.report.ranks.at(0).state == RankState::Slow;
                          _exit(told ? 4 : 1);
                        }}});
  };
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(leave(), testing::ExitedWithCode(4), "");
}

TEST(Overdue, AnInterruptDoesNotWaitForARankThatDoesNotComeHome) {
  const Program program = program_of("gpipe", 2, 2);
  const std::atomic<bool> interrupted{true};
  bool told = false;
  std::atomic<bool> let_go{false};
  const CostTable costs = each_takes(program, 1000);
  local::LocalTransport transport(program, local::paced_messages(program, costs));
  const DeviceFactory make = [&](RankId rank, Clock& clock) {
    return std::make_unique<FaultyDevice>(
        std::make_unique<paced::Device>(program, costs, rank, clock), InstructionId{0},
        Fault::WorksOn, let_go);
  };
  const RunResult result = run(program, costs, transport, make,
                               {.interrupted = &interrupted, .on_overdue = [&](const auto& seen) {
                                  told = seen.outcome == Outcome::Interrupted;
                                  let_go = true;
                                }});
  EXPECT_EQ(result.outcome, Outcome::Interrupted);
  EXPECT_TRUE(told);
}

/// Counts the devices that are there.
class CountedDevice final : public test::DeviceAround {
 public:
  CountedDevice(std::unique_ptr<Device> inner, std::atomic<int>& alive)
      : DeviceAround(std::move(inner)), alive_(alive) {
    ++alive_;
  }
  ~CountedDevice() override { --alive_; }

 private:
  std::atomic<int>& alive_;
};

/// Whoever saves or verifies reads what belongs to all ranks.
TEST_P(OnClock, AnInterruptBetweenStepsLeavesEveryDeviceUntilTheStepHasBeenLookedAt) {
  const Program program = program_of("1f1b", 4, 4);
  const CostTable costs = each_takes(program, 1000);
  for (const bool fails : {false, true}) {
    local::LocalTransport transport(program, local::paced_messages(program, costs), GetParam());
    std::atomic<bool> interrupted{false};
    std::atomic<int> alive{0}, seen{0};
    const DeviceFactory make = [&](RankId rank, Clock& clock) {
      return std::make_unique<CountedDevice>(
          std::make_unique<paced::Device>(program, costs, rank, clock), alive);
    };
    RunOptions options{.steps = 100, .interrupted = &interrupted};
    options.on_step = [&](int, const StepResult&) {
      interrupted = true;
      std::this_thread::sleep_for(milliseconds(100));
      seen = alive.load();
      if (fails) throw std::runtime_error("the disk is full");
    };
    if (fails) {
      EXPECT_THROW(run(program, costs, transport, make, options), std::runtime_error);
    } else {
      EXPECT_EQ(run(program, costs, transport, make, options).outcome, Outcome::Interrupted);
    }
    EXPECT_EQ(seen, 4);
    EXPECT_EQ(alive, 0);
  }
}

TEST_P(OnClock, AnOrderThatHangsIsStuckWithTheCycleOfCheck) {
  // Both send before they receive, and a send lasts until its receive (pytorch#172668).
  const Program program =
      lower(read_order_csv("0SEND_F1,2RECV_F0,2F0\n1SEND_F0,1RECV_F1,1F1\n", "order.csv"),
            {.issue = Issue::Inline}, {.fragment = true});
  const Ended ended = end_of({.program = program, .clock = GetParam()});
  EXPECT_EQ(ended.result.outcome, Outcome::Stuck);
  const WaitReport check = sim::check(program, each_takes(program, 1000));
  EXPECT_EQ(describe(program, ended.result.stuck), describe(program, check));
  for (const RankReport& rank : ended.result.report.ranks) {
    EXPECT_EQ(rank.state, RankState::Stuck);
    EXPECT_EQ(text_of(program, rank.last_finished), "-");
    ASSERT_EQ(rank.lanes.size(), 1U);
    EXPECT_EQ(rank.lanes[0].first_unfinished, rank.first_unfinished);
  }
  EXPECT_EQ(text_of(program, ended.result.report.ranks[0].waits_for), "1RECV_F1");
  EXPECT_EQ(text_of(program, ended.result.report.ranks[1].waits_for), "2RECV_F0");
  EXPECT_LT(ended.took_ms, 1000);  // at once, whatever the watchdog's patience
}

TEST_P(OnClock, EndsThatDoNotMatchAreAMismatch) {
  const Program program =
      lower(read_order_csv("0F0,0F1,0SEND_F1,0SEND_F0\n1RECV_F0,1RECV_F1,1F0,1F1\n", "order.csv"),
            {.issue = Issue::Inline}, {.fragment = true});
  const Ended ended = end_of({.program = program, .clock = GetParam()});
  EXPECT_EQ(ended.result.outcome, Outcome::Stuck);
  EXPECT_EQ(ended.result.stuck.verdict, Verdict::Mismatch);
  EXPECT_EQ(text_of(program, ended.result.stuck.mismatched_send), "0SEND_F1");
  EXPECT_EQ(text_of(program, ended.result.report.ranks[0].last_finished), "0F1");
  EXPECT_EQ(text_of(program, ended.result.report.ranks[0].first_unfinished), "0SEND_F1");
}

TEST(Wall, ALongTransferIsSlowAndNoDeadlock) {
  const Program program =
      lower(read_order_csv("0F0,0B0\n1F0,1B0\n", "order.csv"), {.issue = Issue::Inline});
  const CostTable costs = CostTable::uniform(2, {}, Nanoseconds(5'000 * kMs));
  try {
    paced::run_paced(program, costs, ClockKind::Wall, {.watchdog_ns = 100 * kMs});
    FAIL() << "it cannot have finished";
  } catch (const RunFailed& failed) {
    EXPECT_EQ(failed.result().outcome, Outcome::Slow);
    EXPECT_NE(failed.result().failure.find("data is on its way"), std::string::npos);
    for (const RankReport& rank : failed.result().report.ranks) {
      EXPECT_EQ(rank.state, RankState::Waiting);
    }
  }
}

TEST(Wall, ADeadlockBesideASlowRankIsStillADeadlock) {
  const Program program = lower(read_order_csv("0SEND_F1,2RECV_F0,2F0\n1SEND_F0,1RECV_F1,1F1\n"
                                               "3F5,3SEND_F5\n4RECV_F5,4F5\n",
                                               "order.csv"),
                                {.issue = Issue::Inline}, {.fragment = true});
  const Ended ended = end_of({.program = program,
                              .where = instruction(program, "3F5"),
                              .fault = Fault::WorksOn,
                              .options = {.watchdog_ns = 200 * kMs}});
  EXPECT_EQ(ended.result.outcome, Outcome::Stuck);
  EXPECT_EQ(ended.result.stuck.cycle.size(), 2U);
  const RankState wanted[] = {RankState::Stuck, RankState::Stuck, RankState::Slow,
                              RankState::Waiting};
  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(ended.state(r), wanted[r]) << r;
}

TEST(Wall, ARankThatHasEndedItsStepIsDoneWhileAnotherIsSlow) {
  const Program program = program_of("gpipe", 2, 2);
  const Ended ended = end_of({.program = program,
                              .where = instruction(program, "0B1"),
                              .fault = Fault::WorksOn,
                              .options = {.watchdog_ns = 200 * kMs}});
  EXPECT_EQ(ended.state(0), RankState::Slow);
  EXPECT_EQ(ended.state(1), RankState::Done);
  EXPECT_EQ(ended.result.report.ranks[1].first_unfinished, kNoInstruction);
}

TEST(Wall, WithoutARecorderTheStatesAreThereAndTheEntriesAreNot) {
  const Program program = program_of("gpipe", 2, 2);
  const Ended ended = end_of({.program = program,
                              .where = instruction(program, "0F1"),
                              .fault = Fault::WorksOn,
                              .options = {.watchdog_ns = 100 * kMs, .flight_entries = 0}});
  EXPECT_EQ(ended.state(0), RankState::Slow);
  EXPECT_EQ(ended.state(1), RankState::Waiting);
  EXPECT_TRUE(ended.result.report.ranks[0].recent.empty());
  EXPECT_EQ(ended.result.report.ranks[0].idle_ns, -1);
}

TEST(Virtual, TheEntriesCarryTheSimulatorsTimes) {
  const Program program = program_of("gpipe", 2, 2);
  const InstructionId where = instruction(program, "1F1");
  const Ended ended =
      end_of({.program = program, .where = where, .clock = ClockKind::Virtual, .action_ns = 500});
  for (const FlightEntry& entry : ended.result.report.ranks[0].recent) {
    if (entry.state != FlightState::Ended || program.text(entry.instruction) != "0F1") continue;
    EXPECT_EQ(entry.time_ns, 1000);
  }
  const FlightEntry& last = ended.result.report.ranks[1].recent.back();
  EXPECT_EQ(last.instruction, where);
  EXPECT_EQ(last.time_ns, 1000);  // 0F0, 0F1 | 1F0
}

}  // namespace runtime_test
}  // namespace pipewright::exec
