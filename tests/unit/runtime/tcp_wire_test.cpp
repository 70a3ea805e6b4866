// Frames between processes by sockets: real ones, threads in place of processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <thread>

#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "exec/transports/process/link.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/reference/random_order.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::exec::tcp {
namespace tcp_wire_test {

using mpi::ArrivedFrame;
using mpi::Frame;

/// Each process of a job does this with its wire.
void in_job(int processes, const std::function<void(std::unique_ptr<TcpWire>)>& work) {
  const test::Folder folder;
  std::vector<std::jthread> threads;
  for (int p = 0; p < processes; ++p) {
    threads.emplace_back([&, p] {
      work(std::make_unique<TcpWire>(JobPlace{
          .process = p, .processes = processes, .host = {}, .folder = folder.path().string()}));
    });
  }
}

/// Its content follows from its numbers.
Frame frame_of(std::uint64_t from, std::uint64_t number) {
  reference::Dice dice(from * 1000 + number);
  Frame frame;
  frame.head.a = number;
  frame.token = number;
  frame.note.resize(dice.chance(50) ? 0 : static_cast<std::size_t>(dice.below(5000)));
  for (std::byte& byte : frame.note) byte = static_cast<std::byte>(dice.below(256));
  // Some do not fit into the buffers of a socket.
  const int most = dice.chance(10) ? 3'000'000 : 2000;
  frame.values.assign(static_cast<std::size_t>(dice.below(most)), static_cast<float>(number));
  return frame;
}

TEST(TcpWire, BringsEveryFrameWholeAndInOrder) {
  constexpr int kProcesses = 4;
  constexpr std::uint64_t kFrames = 30;
  in_job(kProcesses, [](std::unique_ptr<TcpWire> wire) {
    const auto own = static_cast<std::uint64_t>(wire->process());
    std::map<int, std::uint64_t> came;
    std::vector<std::uint64_t> out_of_hands;
    std::uint64_t sent = 0, all = 0;
    while (all < kFrames * (kProcesses - 1) || sent < kFrames || !wire->is_at_rest()) {
      if (sent < kFrames) {
        for (int to = 0; to < kProcesses; ++to) {
          if (to != wire->process()) wire->send(to, frame_of(own, sent));
        }
        ++sent;
      }
      while (const auto arrived = wire->receive()) {
        const std::uint64_t number = came[arrived->from]++;
        const Frame expected = frame_of(static_cast<std::uint64_t>(arrived->from), number);
        ASSERT_EQ(arrived->frame.head.a, number);
        ASSERT_EQ(arrived->frame.note, expected.note);
        ASSERT_EQ(arrived->frame.values, expected.values);
        ++all;
      }
      for (const std::uint64_t token : wire->take_sent()) out_of_hands.push_back(token);
    }
    EXPECT_EQ(out_of_hands.size(), kFrames * (kProcesses - 1));
    wire->close();
  });
}

TEST(TcpWire, TellsOnceWhoHasGoneAfterAllThatHeSent) {
  in_job(2, [](std::unique_ptr<TcpWire> wire) {
    if (wire->process() == 1) {
      wire->send(0, frame_of(1, 0));
      while (!wire->is_at_rest()) wire->take_sent();
      return;  // dies
    }
    std::vector<int> gone;
    int frames = 0;
    while (gone.empty()) {
      while (wire->receive()) ++frames;
      gone = wire->take_gone();
    }
    EXPECT_EQ(frames, 1);
    EXPECT_EQ(gone, std::vector<int>{1});
    EXPECT_TRUE(wire->take_gone().empty());
    wire->send(1, frame_of(0, 1));  // nobody hears it, and that is no failure of its own
    wire->take_sent();
    EXPECT_TRUE(wire->is_at_rest());
  });
}

/// The kernel is not asked and no sign of life is due: the connection alone tells it.
TEST(TcpWire, ALinkKnowsThatAProcessIsLostByItsConnection) {
  in_job(2, [](std::unique_ptr<TcpWire> wire) {
    const bool dies = wire->process() == 1;
    mpi::Link link(std::move(wire), {.ask_kernel = false});
    if (dies) return;
    try {
      mpi::all_gather(link, "anybody there?");
      ADD_FAILURE() << "nobody was";
    } catch (const RunError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("process 1 is gone"));
    }
    EXPECT_FALSE(link.close());
  });
}

TEST(TcpWire, CarriesARunFromItsFirstMeetingToItsEnd) {
  const Program program =
      lower(planner::make_order("1f1b", {3, 6, 1, {}}), CommPolicy{}, {.optimizer = true});
  const Nanoseconds time(20'000);
  const CostTable costs = CostTable::uniform(
      program.stages, {.f = time, .i = time, .w = time, .b = time, .opt = {}}, Nanoseconds(0));
  in_job(3, [&](std::unique_ptr<TcpWire> wire) {
    mpi::Link link(std::move(wire));
    {
      mpi::MpiTransport transport(program, local::paced_messages(program, costs), link);
      const RunResult result = paced::run_paced(program, costs, {.steps = 3}, transport);
      EXPECT_TRUE(result.finished());
      EXPECT_EQ(result.steps.size(), 3U);
    }
    EXPECT_TRUE(link.close());
  });
}

}  // namespace tcp_wire_test
}  // namespace pipewright::exec::tcp
