// The demo, whole but short: what it leaves in its folder, and that an interrupted one leaves only
// whole files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace demo_test {

TEST(Demo, LeavesPlanJobProfileAndTwoTraces) {
  const Folder folder;
  const auto result = pipewright("demo --out d --steps 40 --json -q", folder);
  ASSERT_EQ(result.status, 0) << result.err << result.out;
  const auto document = nlohmann::json::parse(result.out);
  // Bytes of English: far below ln 256 = 5.545 after a few steps.
  EXPECT_LT(document.at("steps").back().at("loss").get<double>(), 4.5);
  for (const char* name : {"profile.json", "job.json", "plan.json", "sim.trace.json.gz",
                           "real.trace.json.gz", "corpus.txt"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "d" / name)) << name;
  }
  const auto again = pipewright("run d/job.json --steps 3 --json", folder);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(shell("gzip -t d/*.gz", folder).status, 0);
}

TEST(Demo, SaysNothingOfWhatItDidNotMeasureAndLeavesACheckoutClean) {
  const Folder folder;
  ASSERT_EQ(shell("git init -q . && git status --porcelain", folder).out, "");
  const auto result = pipewright("demo --steps 12", folder);
  ASSERT_EQ(result.status, 0) << result.err << result.out;
  // Its transport hands messages over by their pointers.
  EXPECT_EQ(result.out.find("+100.0 %"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("(0.0 % faster)"), std::string::npos) << result.out;
  EXPECT_EQ(shell("git status --porcelain", folder).out, "");
  // A folder that was there may be somebody's checkout.
  ASSERT_EQ(shell("mkdir there", folder).status, 0);
  EXPECT_EQ(pipewright("demo --steps 2 --out there -q", folder).status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "there/.gitignore"));
}

TEST(Demo, InterruptedLeavesWholeFilesOnly) {
  const Folder folder;
  const auto result = shell(
      "$PW demo --out d --steps 100000 -q & pid=$!; sleep 8; kill -TERM $pid; wait $pid", folder);
  EXPECT_EQ(result.status, 130) << result.err;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "d")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    EXPECT_TRUE(nlohmann::json::accept(file)) << entry.path();
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "d/real.trace.json.gz"));
}

TEST(Demo, AFolderThatCannotBeMadeIsStatus2) {
  const Folder folder;
  folder.write("d", "a file");
  const auto result = pipewright("demo --out d", folder);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_NE(result.err.find("--out"), std::string::npos);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"d"});
}

}  // namespace demo_test
}  // namespace pipewright::test
