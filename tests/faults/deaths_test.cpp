// A rank that dies at a random place of a random step, with ranks as threads and with ranks as
// processes: everybody else comes home soon, and the sentence names the dead one.
// PIPEWRIGHT_FAULT_TRIES=200 tries more of them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/local/transport.hpp"
#include "exec/transports/process/link.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/reference/random_order.hpp"
#include "tests/support/faulty_device.hpp"
#include "tests/support/memory_wire.hpp"

namespace pipewright::exec {
namespace deaths_test {

using test::Fault;
using test::FaultyDevice;

int tries() {
  const char* wanted = std::getenv("PIPEWRIGHT_FAULT_TRIES");
  return wanted == nullptr ? 12 : std::stoi(wanted);
}

struct Death {
  Program program;
  InstructionId where = kNoInstruction;
  Fault fault = Fault::Throws;

  /// How the sentence begins.
  std::string place() const {
    return "rank " + std::to_string(program.rank_of(where).value) + ", " + program.text(where) +
           ", step ";
  }
  std::string reason() const {
    return fault == Fault::HasNoMemory ? "not enough memory" : "the device fell off the bus";
  }
};

Death random_death(std::uint64_t seed) {
  reference::Dice dice(seed);
  const std::string schedule = dice.chance(50) ? "1f1b" : "gpipe";
  Death death;
  death.program = lower(planner::make_order(schedule, {dice.between(2, 4), 4, 1, {}}), CommPolicy{},
                        {.optimizer = true});
  do {
    death.where =
        static_cast<InstructionId>(dice.below(static_cast<int>(death.program.code.size())));
  } while (is_transfer(death.program.code[death.where].kind));
  if (dice.chance(50)) death.fault = Fault::HasNoMemory;
  return death;
}

CostTable costs_of(const Program& program) {
  const Nanoseconds time(20'000);
  return CostTable::uniform(program.stages, {.f = time, .i = time, .w = time, .b = time, .opt = {}},
                            Nanoseconds(0));
}

/// Dies in a step that is not the first.
class DiesLater final : public test::DeviceAround {
 public:
  DiesLater(std::unique_ptr<Device> healthy, std::unique_ptr<Device> faulty)
      : DeviceAround(std::move(healthy)), faulty_(std::move(faulty)) {}
  void begin_step(int step) override {
    if (step == 2) std::swap(inner_, faulty_);
    DeviceAround::begin_step(step);
  }

 private:
  std::unique_ptr<Device> faulty_;
};

DeviceFactory devices_of(const Death& death, const CostTable& costs, std::atomic<bool>& let_go) {
  return [&](RankId rank, Clock& clock) {
    const auto paced = [&] {
      return std::make_unique<paced::Device>(death.program, costs, rank, clock);
    };
    return std::make_unique<DiesLater>(
        paced(), std::make_unique<FaultyDevice>(paced(), death.where, death.fault, let_go));
  };
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void expect_death(const Death& death, const RunResult& result) {
  EXPECT_EQ(result.outcome, Outcome::Failed);
  EXPECT_EQ(result.failure, death.place() + "2: " + death.reason());
  ASSERT_EQ(result.report.ranks.size(), static_cast<std::size_t>(death.program.ranks()));
  const auto dead = static_cast<std::size_t>(death.program.rank_of(death.where).value);
  for (std::size_t r = 0; r < result.report.ranks.size(); ++r) {
    EXPECT_EQ(result.report.ranks[r].state == RankState::Dead, r == dead)
        << r << " " << to_string(result.report.ranks[r].state);
  }
}

TEST(Threads, ComeHomeAndNameTheDeadOne) {
  for (int i = 0; i < tries(); ++i) {
    const Death death = random_death(static_cast<std::uint64_t>(i));
    SCOPED_TRACE(death.place());
    const CostTable costs = costs_of(death.program);
    std::atomic<bool> let_go{false};
    local::LocalTransport transport(death.program, local::real_messages(death.program, costs));
    const Stopwatch watch;
    try {
      run(death.program, costs, transport, devices_of(death, costs, let_go), {.steps = 50});
      FAIL() << "it finished";
    } catch (const RunFailed& failed) {
      expect_death(death, failed.result());
    }
    EXPECT_LT(watch.seconds(), 5);
  }
}

using WireOf = std::function<std::unique_ptr<mpi::Wire>(std::unique_ptr<mpi::Wire>, int process)>;

/// Each process does `work` with a link of its own, and closes it. `wire_of` may put a wire around
/// that of a process.
void as_processes(int count, const std::function<void(int process, mpi::Link&)>& work,
                  const mpi::LinkOptions& options = {}, const WireOf& wire_of = {}) {
  test::MemoryHub hub(count, false);
  std::vector<std::jthread> processes;
  for (int p = 0; p < count; ++p) {
    processes.emplace_back([&, p] {
      std::unique_ptr<mpi::Wire> wire = std::make_unique<test::MemoryWire>(hub, p);
      if (wire_of) wire = wire_of(std::move(wire), p);
      mpi::Link link(std::move(wire), options);
      work(p, link);
      link.close();
    });
  }
}

TEST(Processes, ComeHomeAndNameTheDeadOne) {
  for (int i = 0; i < tries(); ++i) {
    const Death death = random_death(1000 + static_cast<std::uint64_t>(i));
    SCOPED_TRACE(death.place());
    const CostTable costs = costs_of(death.program);
    std::atomic<bool> let_go{false};
    const DeviceFactory make = devices_of(death, costs, let_go);
    std::vector<RunResult> results(static_cast<std::size_t>(death.program.ranks()));
    const Stopwatch watch;
    as_processes(death.program.ranks(), [&](int p, mpi::Link& link) {
      mpi::MpiTransport transport(death.program, local::real_messages(death.program, costs), link);
      try {
        run(death.program, costs, transport, make, {.steps = 50});
      } catch (const RunFailed& failed) {
        results[static_cast<std::size_t>(p)] = failed.result();
      }
    });
    EXPECT_LT(watch.seconds(), 5);
    expect_death(death, results.front());
    for (const RunResult& result : results) EXPECT_EQ(result.outcome, Outcome::Failed);
  }
}

/// Delivers nothing of a run until it is let go.
class Withholding final : public test::WireAround {
 public:
  using WireAround::WireAround;
  std::optional<mpi::ArrivedFrame> receive() override {
    if (lets_go && !withheld_.empty()) {
      mpi::ArrivedFrame first = std::move(withheld_.front());
      withheld_.erase(withheld_.begin());
      return first;
    }
    auto arrived = inner_->receive();
    if (arrived && !lets_go && !mpi::is_of_link(arrived->frame.head.kind)) {
      withheld_.push_back(*std::move(arrived));
      return std::nullopt;
    }
    if (arrived) delivered_goodbye |= arrived->frame.head.kind == mpi::FrameKind::Bye;
    return arrived;
  }

  bool lets_go = false, delivered_goodbye = false;

 private:
  std::vector<mpi::ArrivedFrame> withheld_;
};

TEST(Processes, HaveLeftOnlyWhenAllTheySaidIsHere) {
  test::MemoryHub hub(2, false);
  std::jthread leaves([&] {
    mpi::Link link(std::make_unique<test::MemoryWire>(hub, 0));
    mpi::Frame word;
    word.head.kind = mpi::FrameKind::AllJoined;
    {
      const std::scoped_lock lock(link.mutex());
      word.head.run = link.begin_run();
      link.send(1, std::move(word));
    }
    EXPECT_TRUE(link.close());
  });
  auto made = std::make_unique<Withholding>(std::make_unique<test::MemoryWire>(hub, 1));
  Withholding& wire = *made;
  mpi::Link link(std::move(made));
  {
    const std::scoped_lock lock(link.mutex());
    const std::uint32_t run = link.begin_run();
    while (!wire.delivered_goodbye) EXPECT_FALSE(link.receive(run).has_value());
    EXPECT_FALSE(link.presence().has_left(0)) << "a word of it is still under way";
    wire.lets_go = true;
    EXPECT_TRUE(link.receive(run).has_value());
    EXPECT_TRUE(link.presence().has_left(0));
  }
  EXPECT_TRUE(link.close());
}

/// What a process on another machine looks like when it dies: it says nothing any more.
TEST(Processes, NoticeSilenceWhereTheKernelCannotTell) {
  const Program program =
      lower(planner::make_order("gpipe", {3, 4, 1, {}}), CommPolicy{}, {.optimizer = true});
  const CostTable costs = costs_of(program);
  test::MemoryHub hub(3, false);
  std::vector<std::string> failures(3);
  std::vector<std::jthread> processes;
  for (int p = 0; p < 3; ++p) {
    processes.emplace_back([&, p] {
      const mpi::LinkOptions options{.ask_kernel = false, .silence_ns = 700'000'000};
      mpi::Link link(std::make_unique<test::MemoryWire>(hub, p), options);
      mpi::MpiTransport transport(program, local::real_messages(program, costs), link);
      if (p == 2) return;  // without a word
      try {
        paced::run_paced(program, costs, {.steps = 2, .watchdog_ns = 700'000'000}, transport);
      } catch (const RunFailed& failed) {
        failures[static_cast<std::size_t>(p)] = failed.what();
      }
    });
  }
  processes.clear();
  EXPECT_NE(failures[0].find("rank 2 is dead: its process"), std::string::npos) << failures[0];
  EXPECT_NE(failures[0].find("silent"), std::string::npos) << failures[0];
  EXPECT_FALSE(failures[1].empty());
}

TEST(Processes, WhoComputesForLongIsAliveWhereTheKernelCannotTell) {
  const Program program = lower(planner::make_order("gpipe", {3, 1, 1, {}}), CommPolicy{}, {});
  CostTable costs = costs_of(program);
  costs.stages[1].f = Nanoseconds(1'500'000'000);
  std::vector<std::string> failures(3);
  const auto work = [&](int p, mpi::Link& link) {
    mpi::MpiTransport transport(program, local::real_messages(program, costs), link);
    try {
      paced::run_paced(program, costs, {}, transport);
    } catch (const RunFailed& failed) {
      failures[static_cast<std::size_t>(p)] = failed.what();
    }
  };
  as_processes(3, work, {.ask_kernel = false, .silence_ns = 400'000'000});
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

/// Delivers what a process says of the end of a run only when it is let go.
class HearsLate final : public test::WireAround {
 public:
  HearsLate(std::unique_ptr<mpi::Wire> inner, int late, const std::atomic<bool>& lets_go)
      : WireAround(std::move(inner)), late_(late), lets_go_(lets_go) {}
  std::optional<mpi::ArrivedFrame> receive() override {
    if (lets_go_.load() && !withheld_.empty()) {
      mpi::ArrivedFrame first = std::move(withheld_.front());
      withheld_.pop_front();
      return first;
    }
    auto arrived = inner_->receive();
    if (!arrived || arrived->from != late_ || lets_go_.load()) return arrived;
    const mpi::FrameKind kind = arrived->frame.head.kind;
    if (kind != mpi::FrameKind::End && kind != mpi::FrameKind::FinalState) return arrived;
    withheld_.push_back(*std::move(arrived));
    return std::nullopt;
  }

 private:
  const int late_;
  const std::atomic<bool>& lets_go_;
  std::deque<mpi::ArrivedFrame> withheld_;
};

/// Rank 2 fails; rank 1 hears it and leaves; rank 0 hears rank 1's goodbye first.
TEST(Processes, WhoLeavesARunThatHasFailedIsNotDead) {
  const Program program = lower(planner::make_order("gpipe", {3, 4, 1, {}}), CommPolicy{}, {});
  const CostTable costs = costs_of(program);
  InstructionId where = program.rank_begin[2];
  while (program.code[where].is_communication()) ++where;
  std::atomic<bool> lets_go{false}, let_go{false};
  std::string failure;
  const DeviceFactory make = [&](RankId rank, Clock& clock) -> std::unique_ptr<Device> {
    auto paced = std::make_unique<paced::Device>(program, costs, rank, clock);
    if (rank != RankId(2)) return paced;
    return std::make_unique<FaultyDevice>(std::move(paced), where, Fault::Throws, let_go);
  };
  const auto work = [&](int p, mpi::Link& link) {
    {
      mpi::MpiTransport transport(program, local::real_messages(program, costs), link);
      try {
        run(program, costs, transport, make, {});
      } catch (const RunFailed& failed) {
        if (p == 0) failure = failed.what();
      }
    }
    if (p == 0) lets_go.store(true);
  };
  as_processes(3, work, {.ask_kernel = false},
               [&](std::unique_ptr<mpi::Wire> wire, int p) -> std::unique_ptr<mpi::Wire> {
                 if (p != 0) return wire;
                 return std::make_unique<HearsLate>(std::move(wire), 2, lets_go);
               });
  EXPECT_TRUE(failure.starts_with("rank 2, ")) << failure;
  EXPECT_EQ(failure.find("dead"), std::string::npos) << failure;
}

/// Reads what it is sent only together with a question whether anything can still happen, and the
/// next question at once behind it: as a process that the machine lets wait in between.
class ReadsWhenAsked final : public test::WireAround {
 public:
  using WireAround::WireAround;
  std::optional<mpi::ArrivedFrame> receive() override {
    const Stopwatch watch;
    do {
      while (auto arrived = inner_->receive()) {
        const mpi::FrameKind kind = arrived->frame.head.kind;
        if (!mpi::is_of_step(kind) && kind != mpi::FrameKind::Probe) return arrived;
        reads_ = reads_ || kind == mpi::FrameKind::Probe;
        waiting_.push_back(*std::move(arrived));
      }
      if (waiting_.empty()) reads_ = false;
      if (reads_ && !waiting_.empty()) {
        mpi::ArrivedFrame first = std::move(waiting_.front());
        waiting_.pop_front();
        asks_again_ = first.frame.head.kind == mpi::FrameKind::Probe && !asks_again_;
        return first;
      }
    } while (asks_again_ && watch.seconds() < 0.1);
    asks_again_ = false;
    return std::nullopt;
  }

 private:
  bool reads_ = false, asks_again_ = false;
  std::deque<mpi::ArrivedFrame> waiting_;
};

TEST(Processes, ThatAreSlowToReadAreNotStuck) {
  const Program program = lower(planner::make_order("1f1b", {2, 4, 1, {}}), CommPolicy{}, {});
  const CostTable costs = costs_of(program);
  std::vector<Outcome> outcomes(2, Outcome::Failed);
  const auto work = [&](int p, mpi::Link& link) {
    mpi::MpiTransport transport(program, local::real_messages(program, costs), link);
    outcomes[static_cast<std::size_t>(p)] = paced::run_paced(program, costs, {}, transport).outcome;
  };
  as_processes(2, work, {},
               [](std::unique_ptr<mpi::Wire> wire, int p) -> std::unique_ptr<mpi::Wire> {
                 if (p != 1) return wire;
                 return std::make_unique<ReadsWhenAsked>(std::move(wire));
               });
  EXPECT_EQ(outcomes[0], Outcome::Finished);
  EXPECT_EQ(outcomes[1], Outcome::Finished);
}

/// A failure while processes share what belongs to a step: the others have nothing to throw.
TEST(Processes, AFailureBetweenStepsEndsAllOfThemInOrder) {
  const Program program = lower(planner::make_order("gpipe", {3, 4, 1, {}}), CommPolicy{}, {});
  const CostTable costs = costs_of(program);
  std::vector<std::string> failures(3);
  as_processes(3, [&](int p, mpi::Link& link) {
    mpi::MpiTransport transport(program, local::real_messages(program, costs), link);
    RunOptions options{.steps = 3};
    options.on_step = [&](int step, const StepResult&) {
      if (step == 1 && p == 1) throw MachineError("the disk is full");
      transport.share({});
    };
    try {
      paced::run_paced(program, costs, options, transport);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(p)] = error.what();
    }
  });
  EXPECT_EQ(failures[1], "the disk is full");
  // What it was says the command (tools/running/process_job.hpp), where this look of the run has
  // not come.
  const std::string elsewhere = "another process has ended the run";
  EXPECT_TRUE(failures[0] == failures[1] || failures[0] == elsewhere) << failures[0];
  EXPECT_EQ(failures[2], elsewhere);
}

TEST(Processes, RefuseToRunDifferentPrograms) {
  std::vector<std::string> failures(2);
  as_processes(2, [&](int p, mpi::Link& link) {
    const Program program =
        lower(planner::make_order(p == 0 ? "gpipe" : "1f1b", {2, 4, 1, {}}), CommPolicy{}, {});
    const CostTable costs = costs_of(program);
    mpi::MpiTransport transport(program, local::real_messages(program, costs), link);
    try {
      paced::run_paced(program, costs, {}, transport);
    } catch (const Error& failed) {
      failures[static_cast<std::size_t>(p)] = failed.what();
    }
  });
  EXPECT_NE((failures[0] + failures[1]).find("not been given the same plan"), std::string::npos)
      << failures[0] << failures[1];
}

}  // namespace deaths_test
}  // namespace pipewright::exec
