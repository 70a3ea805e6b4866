// Every collective on every channel. Members are threads of this process, also on the channels of
// processes: each has a link to the others of its own, by sockets.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
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

}  // namespace collectives_test
}  // namespace pipewright::tests
