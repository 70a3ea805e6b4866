// Jobs over several hosts, each with process numbers, a network and a name of its own
// (tests/support/on_hosts): a healthy one comes to its end whatever its ranks take their time for,
// and of one in which a rank dies everybody names that rank. Skipped where there are no namespaces;
// where CI is set that is a failure.
// PIPEWRIGHT_HOSTS_WHOLE=1 (scripts/prove hosts): ten minutes of steps, an action of 30 s, a rank
// that is stopped for 20 s.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace hosts_test {

bool whole() { return std::getenv("PIPEWRIGHT_HOSTS_WHOLE") != nullptr; }

/// The job: starts the ranks, calls `meanwhile` once all of them run, waits for them.
constexpr const char* kJob = R"(#!/bin/bash
ranks=$1 transport=$2
shift 2
if [ $transport = mpi ]; then
  timeout -k 5 $LIMIT mpirun $MPI_HOSTS "$RANK_OF_JOB" "$@" --transport mpi >mpi.out 2>mpi.err &
else
  for ((r = 0; r < ranks; ++r)); do
    timeout -k 5 $LIMIT "$ON_HOST" $r env RANK=$r LOCAL_RANK=0 WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=1 \
      MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 "$RANK_OF_JOB" "$@" --transport tcp &
  done
fi
# signal NAME RANK
signal() { "$ON_HOST" $2 kill -$1 $(cat pid.$2); }
# Once a step has ended; what else is made then takes another moment.
for t in $(seq 600); do [ -s out.0 ] && break; sleep 0.05; done
sleep 1
. ./meanwhile
wait
)";

class Hosts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const CommandResult one = shell(kOnHosts + " 1 true", folder);
    if (one.status != 0 && std::getenv("CI") != nullptr) FAIL() << one.err;
    if (one.status != 0) GTEST_SKIP() << one.err;
    if (transport() == "mpi" && std::string(PIPEWRIGHT_MPIRUN).empty())
      GTEST_SKIP() << "there is no mpirun here";
    folder.write("job", kJob);
  }

  static std::string transport() { return GetParam(); }

  /// So many ranks, each on its own host, run `words`; `meanwhile` is what a shell does to them.
  void run(int ranks, const std::string& words, const std::string& meanwhile = ":",
           int limit_s = 150) {
    folder.write("meanwhile", meanwhile + "\n");
    shell("export LIMIT=" + std::to_string(limit_s) + " PIPEWRIGHT_TOKEN=known-on-all-hosts-" +
              std::to_string(::getpid()) +
              " RANK_OF_JOB=" PIPEWRIGHT_SOURCE_DIR "/tests/support/rank_of_job; chmod +x job; " +
              kOnHosts + " " + std::to_string(ranks) + " ./job " + std::to_string(ranks) + " " +
              transport() + " " + words,
          folder);
  }
  std::string file(const std::string& name, int rank) {
    std::ifstream stream(folder.path() / (name + "." + std::to_string(rank)));
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  void expect_all_finished(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(file("status", r), "0\n") << "rank " << r << ": " << file("err", r);
      EXPECT_EQ(file("err", r), "") << "rank " << r;
    }
  }

  const std::string kOnHosts = PIPEWRIGHT_SOURCE_DIR "/tests/support/on_hosts";
  const Folder folder;
};

TEST_P(Hosts, AnActionMayTakeLongerThanAnySignOfLife) {
  const std::string time = whole() ? "30s" : "6s";
  run(4, "run -s 1f1b -p 4 -m 1 --watchdog 60s --cost F=1ms:1ms:" + time + ":1ms,B=1ms");
  expect_all_finished(4);
}

TEST_P(Hosts, ARankThatIsStoppedForAWhileGoesOn) {
  const std::string seconds = whole() ? "20" : "6";
  for (const char* stopped : {"2", "0"}) {
    SCOPED_TRACE(stopped);
    run(3, "run -s 1f1b -p 3 -m 4 --cost F=2ms,B=2ms --steps 200",
        "signal STOP " + std::string(stopped) + "; sleep " + seconds + "; signal CONT " + stopped);
    expect_all_finished(3);
  }
}

TEST_P(Hosts, ManySteps) {
  const int seconds = whole() ? 600 : 5;
  // Eleven slots of 10 ms a step.
  run(4, "run -s 1f1b -p 4 -m 8 --cost F=5ms,B=5ms --steps " + std::to_string(seconds * 1000 / 110),
      ":", 3 * seconds + 30);
  expect_all_finished(4);
}

TEST_P(Hosts, TheLivingNameTheRankThatWasKilledWithin5Seconds) {
  for (const int dead : {0, 2, 3}) {
    SCOPED_TRACE(dead);
    run(4, "run -s 1f1b -p 4 -m 4 --cost F=1ms,B=1ms --steps 1000000",
        "rm -f late; signal KILL " + std::to_string(dead) +
            "; for t in $(seq 100); do [ $(ls status.* | wc -l) = 4 ] && break; sleep 0.05; "
            "[ $t != 100 ] || ls status.* >late.0; done");
    EXPECT_EQ(file("late", 0), "");
    for (int r = 0; r < 4; ++r) {
      if (r == dead) continue;
      const std::string said = file("err", r);
      EXPECT_EQ(file("status", r), "4\n") << "rank " << r << ": " << said;
      EXPECT_NE(said.find("rank " + std::to_string(dead) + " is dead: its process"), said.npos)
          << "rank " << r << ": " << said;
      EXPECT_EQ(said.find(" is dead"), said.rfind(" is dead")) << "rank " << r << ": " << said;
    }
    shell("rm -f status.* pid.* err.* out.*", folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Hosts, testing::Values("tcp", "mpi"),
                         [](const auto& each) { return std::string(each.param); });

/// Containers that share a network have process numbers of their own too.
TEST(Containers, WithProcessNumbersOfTheirOwnFinish) {
  const Folder folder;
  const CommandResult able = shell("unshare -p -f --kill-child true", folder);
  if (able.status != 0 && std::getenv("CI") != nullptr) FAIL() << able.err;
  if (able.status != 0) GTEST_SKIP() << able.err;
  const CommandResult result = shell(
      "port=$((20000 + $$ % 10000)); pids=; for r in 0 1 2; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=3 "
      "LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 unshare -p -f "
      "--kill-child $PW run -s 1f1b -p 3 -m 1 --cost F=1ms:6s:1ms,B=1ms --transport tcp >out.$r & "
      "pids=\"$pids $!\"; done; s=0; for pid in $pids; do wait $pid || s=$?; done; exit $s",
      folder);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

}  // namespace hosts_test
}  // namespace pipewright::test
