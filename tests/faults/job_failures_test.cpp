// What goes wrong in one process of a job, while it starts, runs and saves: everybody leaves with a
// documented status, and what went wrong is said by the process that speaks and by the one it
// happened to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/reference/random_order.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace job_failures_test {

/// `first` is put in front of rank 1's command; `meanwhile` is done once the ranks run.
constexpr const char* kJob = R"(#!/bin/bash
transport=$1
shift
cat >both <<'SCRIPT'
#!/bin/bash
r=${OMPI_COMM_WORLD_RANK:-$RANK}
[ $r = 0 ] || . ./first
exec "$RANK_OF_JOB" "$@" $more
SCRIPT
chmod +x both
if [ $transport = mpi ]; then
  timeout -k 5 60 mpirun --oversubscribe -np 2 ./both "$@" --transport mpi >mpi.out 2>mpi.err &
else
  for r in 0 1; do
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 PIPEWRIGHT_RENDEZVOUS=tcp://127.0.0.1:$port timeout -k 5 60 \
      ./both "$@" --transport tcp &
  done
fi
for t in $(seq 400); do [ -e pid.0 ] && [ -e pid.1 ] && break; sleep 0.02; done
. ./meanwhile
wait
)";

class Job : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (transport() == "mpi" && std::string(PIPEWRIGHT_MPIRUN).empty())
      GTEST_SKIP() << "there is no mpirun here";
    ASSERT_EQ(write_small_job(folder).status, 0);
    folder.write("job", kJob);
  }
  static std::string transport() { return GetParam(); }

  void run(const std::string& words, const std::string& first, const std::string& meanwhile = ":") {
    folder.write("first", first + "\n");
    folder.write("meanwhile", meanwhile + "\n");
    // Of ports that no connection gets by itself.
    const int port = 15000 + (::getpid() * 31 + runs_++) % 17000;
    shell("export port=" + std::to_string(port) +
              " more= RANK_OF_JOB=" PIPEWRIGHT_SOURCE_DIR
              "/tests/support/rank_of_job; chmod +x job; rm -rf saved* status.* pid.* err.* out.*; "
              "./job " +
              transport() + " " + words,
          folder);
  }
  void signal_while_saving(const std::string& signal, const std::string& rank,
                           const std::string& delay) {
    run("run plan.json --steps 100000 --save-checkpoint saved --checkpoint-every 1 "
        "--keep-checkpoints 2",
        ":",
        "for t in $(seq 200); do [ -e saved ] && break; sleep 0.02; done; sleep " + delay +
            "; kill -" + signal + " $(cat pid." + rank + ")");
  }
  std::string file(const std::string& name, int rank) {
    std::ifstream stream(folder.path() / (name + "." + std::to_string(rank)));
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  std::string all() {
    std::string text;
    for (const int r : {0, 1})
      text += "rank " + std::to_string(r) + " " + file("status", r) + file("err", r);
    return text;
  }
  bool says(int rank, const std::string& text) { return file("err", rank).find(text) != text.npos; }
  /// Over MPI the launcher kills whoever has not ended a second after the first, and a rank that is
  /// killed on a busy machine leaves no status: then it counts what it has said.
  bool ended_with(int rank, const std::string& status, const std::string& said) {
    const std::string found = file("status", rank);
    return (found == status || (found.empty() && transport() == "mpi")) && says(rank, said);
  }

  const Folder folder;

 private:
  int runs_ = 0;
};

TEST_P(Job, SaysWhatFailedInARankThatDoesNotSpeak) {
  run("run plan.json", "more='--data nowhere.txt'");
  // Over MPI the launcher may end the other rank before it has spoken.
  EXPECT_EQ(file("status", 1), "2\n") << all();
  EXPECT_TRUE(says(1, "pipewright run (rank 1): nowhere.txt")) << all();
  if (transport() == "mpi" && file("status", 0) == "130\n") return;
  EXPECT_EQ(file("status", 0), "2\n") << all();
  EXPECT_TRUE(says(0, "pipewright run: rank 1: nowhere.txt")) << all();
  EXPECT_FALSE(says(0, "dead")) << all();
}

TEST_P(Job, SaysOnceWhatFailedInAllRanks) {
  run("run plan.json --data nowhere.txt", ":");
  EXPECT_TRUE(says(0, "pipewright run: nowhere.txt")) << all();
  EXPECT_EQ(file("status", 0), "2\n") << all();
  EXPECT_EQ(file("status", 1), "2\n") << all();
  EXPECT_EQ(file("err", 1), "") << all();
}

TEST_P(Job, AFullDiskOfOneRankEndsAllWithItsSentence) {
  const CommandResult able = shell("unshare -m true", folder);
  if (able.status != 0) GTEST_SKIP() << able.err;
  run("run plan.json --steps 50 --save-checkpoint saved --checkpoint-every 1",
      "[ -n \"$in\" ] || in=yes exec unshare -m ./both \"$@\"; mkdir -p saved; "
      "mount -t tmpfs -o size=16k full saved");
  EXPECT_EQ(file("status", 1), "3\n") << all();
  EXPECT_TRUE(says(1, "No space left on device")) << all();
  if (transport() == "mpi" && file("status", 0) == "130\n") return;
  EXPECT_TRUE(ended_with(0, "3\n", "pipewright run: rank 1: ")) << all();
  EXPECT_TRUE(says(0, "No space left on device")) << all();
}

TEST_P(Job, ADeathWhileSavingIsNamed) {
  reference::Dice dice(17);
  for (int i = 0; i < 8; ++i) {
    const std::string dead = std::to_string(dice.below(2));
    const std::string delay = "0." + std::to_string(400 + dice.below(400));
    SCOPED_TRACE("rank " + dead + " after " + delay + " s");
    signal_while_saving("9", dead, delay);
    const int living = dead == "0" ? 1 : 0;
    EXPECT_EQ(file("status", living), "4\n") << all();
    EXPECT_TRUE(says(living, "rank " + dead + " is dead: its process")) << all();
    EXPECT_FALSE(says(living, "terminate")) << all();
  }
}

TEST_P(Job, AnInterruptWhileSavingIsOne) {
  reference::Dice dice(18);
  for (int i = 0; i < 6; ++i) {
    const std::string to = std::to_string(dice.below(2));
    const std::string delay = "0." + std::to_string(400 + dice.below(400));
    SCOPED_TRACE("rank " + to + " after " + delay + " s");
    signal_while_saving("TERM", to, delay);
    if (to == "0") {
      EXPECT_TRUE(ended_with(0, "130\n", "pipewright run: interrupted")) << all();
    } else {
      EXPECT_EQ(file("status", 1), "130\n") << all();
    }
    const std::string other = file("status", to == "0" ? 1 : 0);
    EXPECT_TRUE(other == "130\n" || other == "4\n") << all();
    EXPECT_FALSE(says(0, "dead") || says(1, "dead")) << all();
  }
}

TEST_P(Job, ADeathWhileItStartsIsToldAtOnce) {
  reference::Dice dice(19);
  int told = 0;
  for (int i = 0; i < 8; ++i) {
    // MPI itself takes most of a second to start.
    const std::string delay = (transport() == "mpi" ? "0." + std::to_string(100 + dice.below(800))
                                                    : "0.0" + std::to_string(10 + dice.below(80)));
    SCOPED_TRACE("after " + delay + " s");
    run("run plan.json --steps 100000", ":",
        "sleep " + delay +
            "; kill -9 $(cat pid.1); rm -f late.0; for t in $(seq 100); do [ -e status.0 ] && "
            "break; sleep 0.05; done; [ -e status.0 ] || { echo >late.0; kill $(cat pid.0); }");
    // Whom it has never met it cannot miss: that one has not come.
    if (file("late", 0) == "\n") continue;
    ++told;
    EXPECT_TRUE(says(0, "rank 1") || says(0, "process 1") || transport() == "mpi") << all();
    EXPECT_FALSE(says(0, "mpirun")) << all();
  }
  if (told == 0 && transport() == "mpi")
    GTEST_SKIP() << "no kill fell between MPI's start and ours";
  EXPECT_GT(told, 0);
}

INSTANTIATE_TEST_SUITE_P(Over, Job, testing::Values("tcp", "mpi"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace job_failures_test
}  // namespace pipewright::test
