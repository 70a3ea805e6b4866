// `run --save-checkpoint` as a user starts it, when the folder is another run's or the disk does
// not take it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace saving_test {

namespace fs = std::filesystem;

class Saving : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(write_small_job(folder_).status, 0); }

  CommandResult train(const std::string& words) {
    return pipewright("run plan.json -q " + words, folder_);
  }
  /// A shell line beside a run that saves after every step, once it holds the folder; $FIRST is its
  /// process.
  CommandResult beside_a_run(const std::string& line) {
    return shell(
        "$PW run plan.json -q --steps 1000000 --save-checkpoint saved --checkpoint-every 1 "
        "--keep-checkpoints 2 >first.out 2>first.err & FIRST=$!; "
        "for t in $(seq 600); do [ -s saved/saving.lock ] && break; sleep 0.05; done; " +
            line,
        folder_);
  }
  /// Files below the folder whose name ends so.
  std::vector<std::string> ending_in(const std::string& ending) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.path().filename().string().ends_with(ending))
        found.push_back(entry.path().string());
    }
    return found;
  }
  void expect_no_litter() const {
    EXPECT_EQ(ending_in(".tmp"), std::vector<std::string>());
    EXPECT_EQ(ending_in(".lock"), std::vector<std::string>());
  }

  const Folder folder_;
};

TEST_F(Saving, ASecondRunIsRefusedByTheNameOfTheFirst) {
  const CommandResult result = beside_a_run(
      "echo $FIRST >pid; $PW run plan.json -q --steps 3 --save-checkpoint ./saved/ 2>second.err; "
      "echo $? >second; ls saved | grep step- | head -1 >steps; kill $FIRST; wait $FIRST; "
      "echo $? >first; cat second first; cat second.err >&2");
  EXPECT_EQ(result.out, "2\n130\n") << result.err;
  std::ifstream file(folder_.path() / "pid");
  std::string pid;
  file >> pid;
  EXPECT_NE(result.err.find("process " + pid + " on "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("saves its checkpoints here; name another folder"), std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("step 1"), std::string::npos) << "it has trained: " << result.err;
  expect_no_litter();
  EXPECT_EQ(train("--steps 3 --save-checkpoint saved").status, 0);
  expect_no_litter();
}

TEST_F(Saving, AKilledRunHoldsNothingAndWhatItLeftUnfinishedIsRemoved) {
  ASSERT_EQ(beside_a_run("kill -9 $FIRST; wait $FIRST; mkdir saved/step-00999999; "
                         "echo half >saved/step-00999999/rank-0.1.tmp; "
                         "echo part >saved/step-00999999/rank-1.00000000.bin; ls saved/*.lock")
                .status,
            0);
  const CommandResult result = train("--steps 1 --save-checkpoint saved");
  EXPECT_EQ(result.status, 0) << result.err;
  expect_no_litter();
  EXPECT_FALSE(fs::exists(folder_.path() / "saved" / "step-00999999"));
}

TEST_F(Saving, AFolderThatWasMadeAndNotFilledGoesAgain) {
  const CommandResult result = shell(
      "$PW run plan.json -q --steps 1000000 --save-checkpoint new >out 2>err & RUN=$!; "
      "for t in $(seq 600); do [ -s new/saving.lock ] && break; sleep 0.05; done; ls new; "
      "kill $RUN; wait $RUN",
      folder_);
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_EQ(result.out, "saving.lock\n");
  EXPECT_FALSE(fs::exists(folder_.path() / "new"));
}

TEST_F(Saving, AFileThatMayNotGrowIsStatus3AndTheCheckpointBeforeStays) {
  ASSERT_EQ(train("--steps 2 --save-checkpoint saved").status, 0);
  // 4 KiB: less than a rank's part.
  const CommandResult result = shell(
      "ulimit -f 8; $PW run plan.json -q --steps 4 --load-checkpoint saved --save-checkpoint saved",
      folder_);
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_NE(result.err.find("File too large"), std::string::npos) << result.err;
  expect_no_litter();
  EXPECT_FALSE(fs::exists(folder_.path() / "saved" / "step-00000004"));
  EXPECT_EQ(train("--steps 3 --load-checkpoint saved").status, 0);
}

TEST_F(Saving, EveryFileThatMayNotGrowIsStatus3AndNotThere) {
  for (const std::string words :
       {"run plan.json -q --steps 2 --trace", "simulate plan.json -q --html",
        "simulate plan.json -q --svg", "tune job.json -q -o"}) {
    SCOPED_TRACE(words);
    const CommandResult result = shell("ulimit -f 1; $PW " + words + " out", folder_);
    EXPECT_EQ(result.status, 3) << result.err;
    EXPECT_NE(result.err.find("File too large"), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(folder_.path() / "out"));
    expect_no_litter();
  }
}

TEST_F(Saving, AFullDiskIsStatus3AndTheCheckpointBeforeStays) {
  const CommandResult result = shell(
      "mkdir disk; unshare -rm true || exit 77; unshare -rm sh -c 'mount -t tmpfs -o size=300k "
      "none "
      "disk || exit 77; $PW run plan.json -q --steps 30 --save-checkpoint disk/saved "
      "--checkpoint-every 1; echo $? >status; find disk -name \"*.tmp\" -o -name \"*.lock\" "
      ">litter; "
      "$PW run plan.json -q --steps 31 --load-checkpoint disk/saved; echo $? >again'",
      folder_);
  if (result.status == 77) GTEST_SKIP() << "this user may not mount a small disk";
  const CommandResult said = shell("cat status litter again", folder_);
  EXPECT_EQ(said.out, "3\n0\n") << result.err;
  EXPECT_NE(result.err.find("No space left on device"), std::string::npos) << result.err;
}

}  // namespace saving_test
}  // namespace pipewright::test
