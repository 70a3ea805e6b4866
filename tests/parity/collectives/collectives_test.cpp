// Every collective on every channel. Members are threads of this process, also on the channels of
// processes: each has a link to the others of its own, by sockets.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>

#include "exec/collectives/process/window_group.hpp"
#include "exec/collectives/threads.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "tests/support/collective_cases.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/link_world.hpp"
#include "tests/support/memory_wire.hpp"

namespace pipewright::tests {
namespace collectives_test {

using exec::collectives::Group;
using test::CollectiveCase;
using test::CollectiveWorld;

/// The groups that threads have made: the first who comes makes one for all.
class ThreadGroups {
 public:
  std::unique_ptr<Group> take(int call, int members, std::size_t member) {
    const std::scoped_lock lock(mutex_);
    auto [made, is_new] = made_.try_emplace(call);
    if (is_new) made->second = exec::collectives::groups_of_threads(members);
    return std::move(made->second[member]);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<std::unique_ptr<Group>>> made_;  // by call of CollectiveWorld::group
};

class ThreadWorld final : public CollectiveWorld {
 public:
  ThreadWorld(ThreadGroups& groups, int self, int size)
      : groups_(groups), self_(self), size_(size) {}
  int self() const override { return self_; }
  int size() const override { return size_; }
  std::unique_ptr<Group> group(const std::vector<int>& who) override {
    ++calls_;
    const auto own = std::find(who.begin(), who.end(), self_);
    if (own == who.end()) return nullptr;
    return groups_.take(calls_, static_cast<int>(who.size()),
                        static_cast<std::size_t>(own - who.begin()));
  }

 private:
  ThreadGroups& groups_;
  const int self_, size_;
  int calls_ = 0;
};

void on_threads(int size, const CollectiveCase& one) {
  ThreadGroups groups;
  std::vector<std::jthread> threads;
  for (int self = 0; self < size; ++self) {
    threads.emplace_back([&, self] {
      ThreadWorld world(groups, self, size);
      one.run(world);
    });
  }
}

using MakeWire = std::function<std::unique_ptr<exec::mpi::Wire>(int self)>;

template <class World>
void over_links(int size, const CollectiveCase& one, const MakeWire& wire) {
  std::vector<std::jthread> threads;
  for (int self = 0; self < size; ++self) {
    threads.emplace_back([&, self] {
      exec::mpi::Link link(wire(self));
      {
        World world(link);
        one.run(world);
      }
      EXPECT_TRUE(link.close());
    });
  }
}

template <class World>
void over_sockets(int size, const CollectiveCase& one) {
  const test::Folder folder;
  over_links<World>(size, one, [&](int self) {
    exec::tcp::JobPlace place;
    place.process = self;
    place.processes = size;
    place.folder = folder.path().string();
    return std::make_unique<exec::tcp::TcpWire>(place);
  });
}

/// Frames may come in any order.
void over_a_shuffling_wire(int size, const CollectiveCase& one) {
  test::MemoryHub hub(size, true);
  over_links<test::WireWorld>(
      size, one, [&](int self) { return std::make_unique<test::MemoryWire>(hub, self); });
}

struct Channel {
  const char* name;
  void (*run)(int size, const CollectiveCase& one);
};
constexpr Channel kChannels[] = {{"Threads", on_threads},
                                 {"Windows", over_sockets<test::WindowWorld>},
                                 {"Sockets", over_sockets<test::WireWorld>},
                                 {"ShufflingWire", over_a_shuffling_wire}};

struct Conformance {
  Channel channel;
  CollectiveCase one;
};

class Collectives : public testing::TestWithParam<Conformance> {};

TEST_P(Collectives, AsPromisedInGroupsOfOneToEight) {
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    SCOPED_TRACE(std::to_string(size) + " members");
    GetParam().channel.run(size, GetParam().one);
  }
}

std::vector<Conformance> all_cases() {
  std::vector<Conformance> cases;
  for (const Channel& channel : kChannels) {
    for (const CollectiveCase& one : test::collective_cases()) cases.push_back({channel, one});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Every, Collectives, testing::ValuesIn(all_cases()),
                         [](const auto& instance) {
                           return std::string(instance.param.channel.name) +
                                  instance.param.one.name;
                         });

/// What a member's look throws once it is told to.
struct LookedAway {};

/// Member 0 never comes. The others' calls end by their look, and by nothing else: also where one
/// of them has gone before, amid the same call.
void expect_ends_by_looks(const std::vector<std::unique_ptr<Group>>& groups,
                          std::atomic<bool>& looks_away) {
  std::atomic<int> ended = 0;
  {
    std::vector<std::jthread> threads;
    for (std::size_t m = 1; m < groups.size(); ++m) {
      threads.emplace_back([&, m] {
        std::vector<float> values(100'000, 1.0F);
        EXPECT_THROW(static_cast<void>(groups[m]->all_reduce({values, exec::Numerics::Fast})),
                     LookedAway);
        ++ended;
        EXPECT_THROW(groups[m]->broadcast(0, std::as_writable_bytes(std::span(values))),
                     LookedAway);
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(ended, 0);
    looks_away = true;
  }
  EXPECT_EQ(ended, static_cast<int>(groups.size()) - 1);
}

TEST(Looks, EndTheCallsOfThreads) {
  std::atomic<bool> looks_away = false;
  expect_ends_by_looks(exec::collectives::groups_of_threads(4,
                                                            [&] {
                                                              if (looks_away) throw LookedAway{};
                                                            }),
                       looks_away);
}

template <class Make>
void expect_looks_end_calls_of_links(const Make& make) {
  test::MemoryHub hub(3, false);
  std::atomic<bool> looks_away = false;
  std::vector<std::unique_ptr<exec::mpi::Link>> links(3);
  std::vector<std::unique_ptr<Group>> groups(3);
  {
    std::vector<std::jthread> threads;
    for (int self = 0; self < 3; ++self) {
      threads.emplace_back([&, self] {
        auto& link = links[static_cast<std::size_t>(self)];
        link = std::make_unique<exec::mpi::Link>(std::make_unique<test::MemoryWire>(hub, self));
        groups[static_cast<std::size_t>(self)] = make(*link, [&] {
          if (looks_away) throw LookedAway{};
        });
      });
    }
  }
  expect_ends_by_looks(groups, looks_away);
  groups.clear();
  std::vector<std::jthread> threads;
  for (auto& link : links) threads.emplace_back([&link] { EXPECT_TRUE(link->close()); });
}

constexpr std::array<int, 3> kAll = {0, 1, 2};

TEST(Looks, EndTheCallsThroughWindows) {
  expect_looks_end_calls_of_links([](exec::mpi::Link& link, const exec::collectives::Look& look) {
    return exec::collectives::window_group(link, kAll, look);
  });
}

TEST(Looks, EndTheCallsOverTheWire) {
  expect_looks_end_calls_of_links([](exec::mpi::Link& link, const exec::collectives::Look& look) {
    return exec::collectives::wire_group(std::make_shared<exec::collectives::Mail>(link), kAll,
                                         look);
  });
}

/// Two runs of a link take turns in reading: each gets what is its own, in the order in which it
/// came, and what was sent for a run that is over is dropped.
TEST(RunsOfALink, BesideOneAnotherGetWhatIsTheirs) {
  test::MemoryHub hub(2, false);
  std::jthread other([&] {
    exec::mpi::Link link(std::make_unique<test::MemoryWire>(hub, 1));
    const exec::mpi::LinkRun first(link), second(link), third(link);
    for (std::uint64_t k = 0; k < 30; ++k) {
      const exec::mpi::LinkRun& run = k % 3 == 0 ? first : k % 3 == 1 ? second : third;
      exec::mpi::Frame frame;
      frame.head.kind = exec::mpi::FrameKind::Part;
      frame.head.run = run.number();
      frame.head.a = k;
      const std::scoped_lock lock(link.mutex());
      link.send(0, std::move(frame));
    }
    EXPECT_TRUE(link.close());
  });
  exec::mpi::Link link(std::make_unique<test::MemoryWire>(hub, 0));
  const exec::mpi::LinkRun first(link), second(link);
  const std::uint32_t over = exec::mpi::LinkRun(link).number();
  const auto next = [&](std::uint32_t run) {
    while (true) {
      const std::scoped_lock lock(link.mutex());
      if (const auto arrived = link.receive(run)) return arrived->frame.head.a;
    }
  };
  for (std::uint64_t k = 0; k < 10; ++k) {
    EXPECT_EQ(next(second.number()), 3 * k + 1);
    EXPECT_EQ(next(first.number()), 3 * k);
  }
  {
    const std::scoped_lock lock(link.mutex());
    EXPECT_FALSE(link.receive(first.number()).has_value());
    EXPECT_FALSE(link.receive(over).has_value());
  }
  EXPECT_TRUE(link.close());
}

}  // namespace collectives_test
}  // namespace pipewright::tests
