// A rank that dies, fails or hangs in the middle of a sum of ranks that divide a stage: the run
// ends everywhere, and says what it was. Processes are real ones, started and killed here.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "exec/collectives/process/job_groups.hpp"
#include "exec/collectives/process/wire_group.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/divided_program.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::tests {
namespace divided_deaths_test {

namespace fs = std::filesystem;
using exec::collectives::Group;
using exec::collectives::PartsIn;
using exec::collectives::PartsOut;
using exec::collectives::Summands;

enum class Fault { Dies, Fails, Hangs };

constexpr int kProcesses = 4, kFaulty = 3;
constexpr std::int64_t kPatienceNs = 1'500'000'000;

/// The faulty member's: something happens to it in its fortieth call.
class FaultyGroup final : public Group {
 public:
  FaultyGroup(std::unique_ptr<Group> healthy, Fault fault)
      : healthy_(std::move(healthy)), fault_(fault) {}

  int member() const override { return healthy_->member(); }
  int members() const override { return healthy_->members(); }
  bool all_reduce(Summands values) override { return begun().all_reduce(values); }
  bool reduce_scatter(Summands values) override { return begun().reduce_scatter(values); }
  void all_gather(PartsIn all) override { begun().all_gather(all); }
  void all_to_all(PartsOut out, PartsIn in) override { begun().all_to_all(out, in); }
  void broadcast(int root, std::span<std::byte> bytes) override { begun().broadcast(root, bytes); }
  void give_up(const std::string& why) noexcept override { healthy_->give_up(why); }

 private:
  Group& begun() {
    if (++calls_ < 40) return *healthy_;
    if (fault_ == Fault::Dies) raise(SIGKILL);
    if (fault_ == Fault::Fails) throw RunError("the device fell off the bus");
    while (true) pause();
  }

  const std::unique_ptr<Group> healthy_;
  const Fault fault_;
  int calls_ = 0;
};

struct Case {
  Fault fault;
  bool over_wire;
};

/// Trains until the run ends, and says how.
std::string words_of_run(exec::mpi::Link& link, const Case& one) {
  const Layout layout;
  const Program program =
      divided(planner::make_order("1f1b", {2, 4, 1, {}}), divisible_model(), layout);
  const DividedSetting setting(program, divisible_model(), exec::Numerics::Exact, layout);
  const CostTable costs = costs_of(program, 1000);
  exec::mpi::MpiTransport transport(program, exec::local::real_messages(program, costs), link);
  exec::collectives::JobGroups groups(link);
  const auto mail = std::make_shared<exec::collectives::Mail>(link);
  const auto group_of = [&](std::span<const RankId> ranks, const exec::collectives::Look& look) {
    const std::vector<int> who = {exec::mpi::process_of_rank(ranks[0]),
                                  exec::mpi::process_of_rank(ranks[1])};
    auto group =
        one.over_wire ? exec::collectives::wire_group(mail, who, look) : groups.group(ranks, look);
    if (link.process() == kFaulty && group != nullptr)
      group = std::make_unique<FaultyGroup>(std::move(group), one.fault);
    return group;
  };
  try {
    exec::cpu::run_on_cpu(program, costs, setting.training,
                          {.steps = 100'000, .watchdog_ns = kPatienceNs}, transport, group_of);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "the run has finished";
}

fs::path words_of(const test::Folder& folder, int process) {
  return folder.path() / ("said." + std::to_string(process));
}

[[noreturn]] void take_part(const test::Folder& folder, int self, const Case& one) {
  alarm(60);  // a hang is a failure, too
  {
    exec::tcp::JobPlace place;
    place.process = self;
    place.processes = kProcesses;
    place.folder = folder.path().string();
    exec::mpi::Link link(std::make_unique<exec::tcp::TcpWire>(place));
    const std::string words = words_of_run(link, one);
    std::ofstream(words_of(folder, self)) << words;
    link.close();
  }
  _exit(0);
}

void wait_for_words(const test::Folder& folder, int process) {
  for (int look = 0; look < 2000 && !fs::exists(words_of(folder, process)); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

/// What every process says at the end; none of them takes long.
std::vector<std::string> words_of_job(const Case& one) {
  const test::Folder folder;
  std::vector<pid_t> children;
  for (int self = 0; self < kProcesses; ++self) {
    children.push_back(fork());
    if (children.back() == 0) take_part(folder, self, one);
  }
  const auto begin = std::chrono::steady_clock::now();
  if (one.fault == Fault::Hangs) {
    for (int self = 0; self < kProcesses; ++self) {
      if (self != kFaulty) wait_for_words(folder, self);
    }
    kill(children[kFaulty], SIGKILL);
  }
  std::vector<std::string> said(kProcesses);
  for (int self = 0; self < kProcesses; ++self) {
    int status = 0;
    EXPECT_EQ(waitpid(children[static_cast<std::size_t>(self)], &status, 0),
              children[static_cast<std::size_t>(self)]);
    const bool is_killed = self == kFaulty && one.fault != Fault::Fails;
    EXPECT_EQ(WIFEXITED(status), !is_killed) << "process " << self;
    std::ifstream words(words_of(folder, self));
    said[static_cast<std::size_t>(self)] = {std::istreambuf_iterator<char>(words), {}};
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  return said;
}

class DividedDeaths : public testing::TestWithParam<bool> {};

TEST_P(DividedDeaths, NameTheRankThatWasKilled) {
  const std::vector<std::string> said = words_of_job({Fault::Dies, GetParam()});
  EXPECT_TRUE(said[0].starts_with("rank 3 is dead: its process ")) << said[0];
  for (const int other : {1, 2}) EXPECT_NE(said[other].find("rank 3 is dead"), std::string::npos);
}

TEST_P(DividedDeaths, ARankThatFailsSaysWhy) {
  const std::vector<std::string> said = words_of_job({Fault::Fails, GetParam()});
  for (const std::string& words : said) {
    EXPECT_TRUE(words.starts_with("rank 3, ")) << words;
    EXPECT_NE(words.find("the device fell off the bus"), std::string::npos) << words;
  }
}

TEST_P(DividedDeaths, NobodyWaitsForARankThatHangsLongerThanTheWatchdog) {
  const std::vector<std::string> said = words_of_job({Fault::Hangs, GetParam()});
  EXPECT_TRUE(said[0].starts_with("nothing has ended for 1.50 s")) << said[0];
  EXPECT_FALSE(said[1].empty());
  EXPECT_FALSE(said[2].empty());
}

INSTANTIATE_TEST_SUITE_P(Through, DividedDeaths, testing::Bool(), [](const auto& instance) {
  return std::string(instance.param ? "TheWire" : "Windows");
});

}  // namespace divided_deaths_test
}  // namespace pipewright::tests
