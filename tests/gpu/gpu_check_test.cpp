// scripts/gpu-check on a machine without a GPU: it says so, and leaves nothing behind.
#include <gtest/gtest.h>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace {

const std::string kScript = PIPEWRIGHT_SOURCE_DIR "/scripts/gpu-check";

TEST(GpuCheck, SaysThatThereIsNoGpuAndExitsWith3) {
  const Folder folder;
  if (shell("nvidia-smi --list-gpus", folder).status == 0) GTEST_SKIP() << "this machine has a GPU";
  const CommandResult result = shell(kScript + " --deps . --out results", folder);
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("no GPU here"), std::string::npos) << result.err;
  EXPECT_TRUE(folder.names().empty());
}

TEST(GpuCheck, RefusesWhatItDoesNotKnow) {
  const Folder folder;
  EXPECT_EQ(shell(kScript + " --fast", folder).status, 2);
  EXPECT_EQ(shell(kScript + " --deps gone", folder).status, 2);
  EXPECT_EQ(shell(kScript + " --help", folder).status, 0);
}

}  // namespace
}  // namespace pipewright::test
