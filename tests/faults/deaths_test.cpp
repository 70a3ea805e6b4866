// A rank that dies at a random place of a random step, with ranks as threads and with ranks as
// processes: everybody else comes home soon, and the sentence names the dead one.
// PIPEWRIGHT_FAULT_TRIES=200 tries more of them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/lower.hpp"
#include "exec/local/transport.hpp"
#include "exec/mpi/link.hpp"
#include "exec/mpi/transport.hpp"
#include "exec/paced/device.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/reference/random_order.hpp"
#include "tests/support/faulty_device.hpp"
#include "tests/support/memory_wire.hpp"

namespace pipewright::exec {
namespace {

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
class DiesLater final : public Device {
 public:
  DiesLater(std::unique_ptr<Device> healthy, std::unique_ptr<Device> faulty)
      : healthy_(std::move(healthy)), faulty_(std::move(faulty)) {}
  void begin_step(int step) override {
    now_ = step < 2 ? healthy_.get() : faulty_.get();
    now_->begin_step(step);
  }
  void compute(InstructionId id) override { now_->compute(id); }
  PayloadPtr give(InstructionId send) override { return now_->give(send); }
  void accept(InstructionId recv, PayloadPtr payload) override {
    now_->accept(recv, std::move(payload));
  }
  void end_step() override { now_->end_step(); }

 private:
  std::unique_ptr<Device> healthy_, faulty_;
  Device* now_ = nullptr;
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

TEST(Processes, ComeHomeAndNameTheDeadOne) {
  for (int i = 0; i < tries(); ++i) {
    const Death death = random_death(1000 + static_cast<std::uint64_t>(i));
    SCOPED_TRACE(death.place());
    const CostTable costs = costs_of(death.program);
    std::atomic<bool> let_go{false};
    const DeviceFactory make = devices_of(death, costs, let_go);
    test::MemoryHub hub(death.program.ranks(), false);
    std::vector<RunResult> results(static_cast<std::size_t>(death.program.ranks()));
    const Stopwatch watch;
    std::vector<std::jthread> processes;
    for (int p = 0; p < death.program.ranks(); ++p) {
      processes.emplace_back([&, p] {
        mpi::Link link(std::make_unique<test::MemoryWire>(hub, p));
        {
          mpi::MpiTransport transport(death.program, local::real_messages(death.program, costs),
                                      link);
          try {
            run(death.program, costs, transport, make, {.steps = 50});
          } catch (const RunFailed& failed) {
            results[static_cast<std::size_t>(p)] = failed.result();
          }
        }
        link.close();
      });
    }
    processes.clear();
    EXPECT_LT(watch.seconds(), 5);
    expect_death(death, results.front());
    for (const RunResult& result : results) EXPECT_EQ(result.outcome, Outcome::Failed);
  }
}

/// What a process on another machine looks like when it dies: it says nothing any more.
/// Delivers nothing of a run until it is let go.
class Withholding final : public mpi::Wire {
 public:
  explicit Withholding(std::unique_ptr<mpi::Wire> inner) : inner_(std::move(inner)) {}
  int process() const override { return inner_->process(); }
  int processes() const override { return inner_->processes(); }
  void send(int to, mpi::Frame frame) override { inner_->send(to, std::move(frame)); }
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
  std::vector<std::uint64_t> take_sent() override { return inner_->take_sent(); }
  bool is_at_rest() const override { return inner_->is_at_rest(); }
  void close() override { inner_->close(); }

  bool lets_go = false, delivered_goodbye = false;

 private:
  std::unique_ptr<mpi::Wire> inner_;
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
        paced::run_paced(program, costs, {.steps = 2}, transport);
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

TEST(Processes, RefuseToRunDifferentPrograms) {
  test::MemoryHub hub(2, false);
  std::vector<std::string> failures(2);
  std::vector<std::jthread> processes;
  for (int p = 0; p < 2; ++p) {
    processes.emplace_back([&, p] {
      const Program program =
          lower(planner::make_order(p == 0 ? "gpipe" : "1f1b", {2, 4, 1, {}}), CommPolicy{}, {});
      const CostTable costs = costs_of(program);
      mpi::Link link(std::make_unique<test::MemoryWire>(hub, p));
      {
        mpi::MpiTransport transport(program, local::real_messages(program, costs), link);
        try {
          paced::run_paced(program, costs, {}, transport);
        } catch (const Error& failed) {
          failures[static_cast<std::size_t>(p)] = failed.what();
        }
      }
      link.close();
    });
  }
  processes.clear();
  EXPECT_NE((failures[0] + failures[1]).find("not been given the same plan"), std::string::npos)
      << failures[0] << failures[1];
}

}  // namespace
}  // namespace pipewright::exec
