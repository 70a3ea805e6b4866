// A process that dies amid collectives: the calls of all others end, and say who it was. Processes
// are real ones, started and killed here.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/link_world.hpp"

namespace pipewright::test {
namespace collective_deaths_test {

enum Status : int { NothingSaid = 20, SaidWho, SaidSomethingElse };

/// What a process of the job does; it never comes back. The last one dies in its
/// thirtieth call.
template <class World>
[[noreturn]] void take_part(const std::string& folder, int self, int processes) {
  alarm(60);  // a hang is a failure, too
  int status = NothingSaid;
  try {
    exec::tcp::JobPlace place;
    place.process = self;
    place.processes = processes;
    place.folder = folder;
    exec::mpi::Link link(std::make_unique<exec::tcp::TcpWire>(place));
    World world(link);
    std::vector<int> all;
    for (int p = 0; p < processes; ++p) all.push_back(p);
    const auto group = world.group(all);
    std::vector<float> values(100'000, 1.0F);
    for (int call = 0; call < 1000; ++call) {
      if (self == processes - 1 && call == 30) raise(SIGKILL);
      static_cast<void>(group->all_reduce({values, exec::Numerics::Exact}));
      std::fill(values.begin(), values.end(), 1.0F);
    }
  } catch (const RunError& error) {
    const bool says_who = std::string(error.what()).find("is gone: its ") != std::string::npos &&
                          std::string(error.what()).find(" has ended") != std::string::npos;
    status = says_who ? SaidWho : SaidSomethingElse;
    if (!says_who) std::fprintf(stderr, "process %d: %s\n", self, error.what());
  }
  _exit(status);
}

using TakePart = void (*)(const std::string& folder, int self, int processes);

class CollectiveDeaths : public testing::TestWithParam<TakePart> {};

TEST_P(CollectiveDeaths, EndTheCallsOfAllOthers) {
  for (const int processes : {2, 3, 5}) {
    const Folder folder;
    std::vector<pid_t> children;
    for (int self = 0; self < processes; ++self) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) GetParam()(folder.path().string(), self, processes);
      children.push_back(child);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int self = 0; self < processes; ++self) {
      int status = 0;
      ASSERT_EQ(waitpid(children[static_cast<std::size_t>(self)], &status, 0),
                children[static_cast<std::size_t>(self)]);
      if (self == processes - 1) {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        continue;
      }
      EXPECT_TRUE(WIFEXITED(status)) << "process " << self << " of " << processes << " hangs";
      EXPECT_EQ(WEXITSTATUS(status), SaidWho) << "process " << self << " of " << processes;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  }
}

INSTANTIATE_TEST_SUITE_P(Through, CollectiveDeaths,
                         testing::Values(take_part<WindowWorld>, take_part<WireWorld>),
                         [](const auto& instance) {
                           return std::string(instance.index == 0 ? "Windows" : "TheWire");
                         });

}  // namespace collective_deaths_test
}  // namespace pipewright::test
