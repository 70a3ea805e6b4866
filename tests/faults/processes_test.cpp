// `run --transport mpi` as a user starts it, when things go wrong: killed processes, full disks,
// readers that go away, wrong numbers of processes. Skipped where there is no mpirun.
// PIPEWRIGHT_FAULT_TRIES=200 kills more of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/reference/random_order.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace processes_test {

class Mpirun : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(PIPEWRIGHT_MPIRUN).empty()) GTEST_SKIP() << "there is no mpirun here";
    // A ring of ranks that would run for a minute.
    folder.write("rank", R"(#!/bin/sh
# A rank whose status and words can be read afterwards, whatever mpirun does to it meanwhile. It waits for the command
# in the foreground: "wait" could end with the signal's status after the command is gone.
trap : TERM
export r=$OMPI_COMM_WORLD_RANK
sh -c 'echo $$ >new.$r; mv new.$r pid.$r; exec "$PW" "$@"' sh "$@" >out.$r 2>err.$r
s=$?
echo $s >status.$r
exit $s
)");
  }

  /// A shell line with $MPIRUN.
  CommandResult job(const std::string& line) {
    return shell("export MPIRUN='" PIPEWRIGHT_MPIRUN " --oversubscribe'; chmod +x rank; " + line,
                 folder);
  }
  std::string file(const std::string& name) {
    std::ifstream stream(folder.path() / name);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  const Folder folder;
};

int tries() {
  const char* wanted = std::getenv("PIPEWRIGHT_FAULT_TRIES");
  return wanted == nullptr ? 2 : std::stoi(wanted);
}

constexpr const char* kLongRun =
    "run -s 1f1b -p 3 -m 4 --cost F=50us,B=100us --transport mpi --steps 1000000 --report r.json";

TEST_F(Mpirun, TheLivingLeaveWithin5SecondsAndNameTheRankThatWasKilled) {
  reference::Dice dice(static_cast<std::uint64_t>(tries()));
  for (int i = 0; i < tries(); ++i) {
    const std::string dead = std::to_string(dice.below(3));
    const std::string delay = "0." + std::to_string(100 + dice.below(500));
    SCOPED_TRACE("rank " + dead + " after " + delay + " s");
    // A process holds a descriptor of each other one as soon as all are connected.
    const CommandResult result = job(
        "rm -f pid.* status.* out.* err.* late; "
        "{ timeout 60 $MPIRUN -np 3 ./rank " +
        std::string(kLongRun) +
        " >mpi.out 2>mpi.err & }; "
        "connected() { [ $(ls -l /proc/$(cat pid.$1)/fd 2>/dev/null | grep -c pidfd) = 2 ]; }; "
        "for t in $(seq 300); do [ -e pid.0 ] && [ -e pid.1 ] && [ -e pid.2 ] && connected 0 && "
        "connected 1 && connected 2 && break; sleep 0.05; done; sleep " +
        delay +
        "; "
        "kill -9 $(cat pid." +
        dead +
        "); "
        "for t in $(seq 100); do [ -e status.0 ] && [ -e status.1 ] && [ -e status.2 ] && break; "
        "sleep 0.05; [ $t != 100 ] || echo late >late; done; wait");
    EXPECT_EQ(file("late"), "") << result.err;
    for (const std::string rank : {"0", "1", "2"}) {
      if (rank == dead) continue;
      EXPECT_EQ(file("status." + rank), "4\n") << rank;
      EXPECT_NE(file("err." + rank).find("rank " + dead + " is dead"), std::string::npos)
          << rank << ": " << file("err." + rank);
    }
    if (dead == "0") continue;
    // Process 0 has written the report.
    EXPECT_NE(file("r.json").find("\"dead\""), std::string::npos) << file("err.0");
    EXPECT_NE(file("out.0").find("dead"), std::string::npos);
  }
}

TEST_F(Mpirun, TheSentenceReachesTheUserThroughMpirun) {
  const CommandResult result = job(
      "{ $MPIRUN -np 2 sh -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec $PW run -s gpipe -p 2 -m 4 "
      "--cost F=50us,B=100us --transport mpi --steps 1000000' & }; mpi=$!; "
      "for t in $(seq 300); do [ $(ls -l /proc/$(cat pid.1 2>/dev/null)/fd 2>/dev/null | grep -c "
      "pidfd) = 1 ] && break; sleep 0.05; done; sleep 0.5; kill -9 $(cat pid.1); wait $mpi");
  EXPECT_NE(result.err.find("pipewright run: rank 1 is dead"), std::string::npos) << result.err;
  EXPECT_NE(result.status, 0);
}

TEST_F(Mpirun, AHangEndsWithTheCycleAndStatus4) {
  const std::string hang = "-s paddle-vpp --jobs fused -p 4 -m 8 -v 2";
  job("timeout 20 $MPIRUN -np 4 $PW run " + hang +
      " --transport mpi --report r.json --trace t.json >out 2>err; echo $? >status");
  const CommandResult check = job("$PW check " + hang);
  ASSERT_EQ(check.status, 1) << check.out << check.err;
  EXPECT_EQ(file("status"), "4\n") << file("err");
  // Both name the cycle alike.
  const std::size_t cycle = check.out.find("  rank ");
  ASSERT_NE(cycle, std::string::npos) << check.out;
  const std::string line = check.out.substr(cycle, check.out.find('\n', cycle) - cycle);
  EXPECT_NE(file("out").find(line), std::string::npos) << file("out") << "\n" << check.out;
  EXPECT_NE(file("r.json").find("stuck"), std::string::npos);
  EXPECT_NE(file("t.json").find("traceEvents"), std::string::npos);
}

TEST_F(Mpirun, OneTraceHoldsAllRanksAndSaysHowTheClocksAgree) {
  const CommandResult result =
      job("$MPIRUN -np 3 $PW run -s 1f1b -p 3 -m 4 --transport mpi "
          "--verify-payloads --trace t.json --json");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '{') > 0, true);
  const std::string trace = file("t.json");
  for (const std::string stage : {"0", "1", "2"}) {
    EXPECT_NE(trace.find(stage + "F3"), std::string::npos) << stage;
  }
  EXPECT_NE(trace.find("\"clocks\""), std::string::npos);
  EXPECT_EQ(result.out.find("pipewright.result/1"), result.out.rfind("pipewright.result/1"));
}

TEST_F(Mpirun, AFullDiskIsStatus3AndASentence) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  // mpirun's own status is that of whichever process ends first.
  const CommandResult result =
      job("for words in '--trace /dev/full/t.json' '>/dev/full'; do export words; $MPIRUN -np 2 sh "
          "-c 'eval $PW run -s gpipe -p 2 -m 2 --transport mpi $words; echo $? "
          ">>status.$OMPI_COMM_WORLD_RANK'; done");
  EXPECT_EQ(file("status.0"), "3\n3\n") << result.err;
  EXPECT_NE(result.err.find("standard output: No space left on device"), std::string::npos)
      << result.err;
}

TEST_F(Mpirun, AReaderThatGoesAwayIsNoError) {
  const CommandResult result =
      job("$MPIRUN -np 2 sh -c '$PW run -s gpipe -p 2 -m 2 --transport mpi | head -c 1 >/dev/null; "
          "echo done >done.$OMPI_COMM_WORLD_RANK'");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(file("done.0"), "done\n");
  EXPECT_EQ(file("done.1"), "done\n");
}

TEST_F(Mpirun, WrongNumbersAndFlagsAreSentencesOfProcess0Alone) {
  const CommandResult wrong =
      job("$MPIRUN -np 3 $PW run -s gpipe -p 2 -m 2 --transport mpi; echo $? >status");
  EXPECT_EQ(file("status"), "2\n");
  const std::string says = "this Program has 2 ranks and the job has 3 processes";
  EXPECT_NE(wrong.err.find(says), std::string::npos) << wrong.err;
  EXPECT_EQ(wrong.err.find(says), wrong.err.rfind(says)) << wrong.err;
  const CommandResult alone = job("$PW run -s gpipe -p 2 -m 2 --transport mpi");
  EXPECT_EQ(alone.status, 3);
  EXPECT_NE(alone.err.find("mpirun -np 2"), std::string::npos) << alone.err;
  const CommandResult clock = job("$PW run -s gpipe -p 2 -m 2 --transport mpi --clock virtual");
  EXPECT_EQ(clock.status, 2);
}

}  // namespace processes_test
}  // namespace pipewright::test
