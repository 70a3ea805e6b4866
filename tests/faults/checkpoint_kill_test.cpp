// A training that is killed at any moment goes on from its last checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace checkpoint_kill_test {

namespace fs = std::filesystem;

/// Steps behind the newest finished checkpoint; 0: there is none.
int steps_saved(const fs::path& all) {
  int newest = 0;
  if (!fs::exists(all)) return newest;
  for (const auto& entry : fs::directory_iterator(all)) {
    if (!fs::exists(entry.path() / "checkpoint.json")) continue;
    newest = std::max(newest, std::stoi(entry.path().filename().string().substr(5)));
  }
  return newest;
}

TEST(KilledTraining, GoesOnFromItsLastCheckpoint) {
  const Folder folder;
  ASSERT_EQ(write_small_job(folder).status, 0);
  const fs::path saved = folder.path() / "saved";
  int behind = 0;
  for (const char* pause : {"0.8", "0.11", "0.17", "0.29", "0.4"}) {
    const std::string load = behind > 0 ? " --load-checkpoint saved" : "";
    shell(
        "$PW run plan.json -q --steps 1000000 --save-checkpoint saved --checkpoint-every 1 "
        "--keep-checkpoints 2" +
            load + " >log 2>&1 & PID=$!; sleep " + pause + "; kill -KILL $PID; wait $PID",
        folder);
    const int now = steps_saved(saved);
    EXPECT_GE(now, behind);
    behind = now;
    if (behind == 0) continue;  // a slow machine
    const CommandResult result = pipewright(
        "run plan.json --json --load-checkpoint saved --steps " + std::to_string(behind + 2),
        folder);
    ASSERT_EQ(result.status, 0) << result.err;
    const auto document = nlohmann::json::parse(result.out);
    EXPECT_EQ(document["first_step"], behind);
    EXPECT_EQ(document["steps"].size(), 2U);
  }
  EXPECT_GT(behind, 0) << "nothing was saved in eight tenths of a second";
}

}  // namespace checkpoint_kill_test
}  // namespace pipewright::test
