// pipewright explain: the dumps of a job that really hung, and what the command refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_explain_test {

using nlohmann::json;
using testing::HasSubstr;

const std::string kHang = PIPEWRIGHT_SOURCE_DIR "/examples/hang";

TEST(Explain, ARealHangOnGloo) {
  const Folder folder;
  const auto text = pipewright("explain " + kHang, folder);
  EXPECT_EQ(text.status, 1) << text.err;
  EXPECT_THAT(text.out, HasSubstr("MISMATCH"));
  EXPECT_THAT(text.out, HasSubstr("rank 1 seems to have left out all_reduce 5"));
  EXPECT_EQ(text.err, "");
  const auto by_name = pipewright(
      "explain " + kHang + "/rank2 " + kHang + "/rank0 " + kHang + "/rank1 --json", folder);
  EXPECT_EQ(by_name.status, 1);
  const json result = json::parse(by_name.out);
  EXPECT_EQ(result["verdict"], "mismatch");
  EXPECT_EQ(result["dumps"]["verdict"], "mismatch");
  EXPECT_EQ(result["dumps"]["standstills"][0]["differ"], "data");
  EXPECT_EQ(result["dumps"]["shifts"][0]["call"]["rank"], 1);
  EXPECT_EQ(result["dumps"]["at_end"][1]["calls"], 5);
}

TEST(Explain, RefusesInASentence) {
  const Folder folder;
  folder.write("notes.txt", "hello");
  const auto refused = [&](const std::string& words) {
    const auto result = pipewright("explain " + words, folder);
    EXPECT_EQ(result.status, 2) << words;
    return result.err;
  };
  EXPECT_THAT(refused("."), HasSubstr("has no Flight Recorder dump in it"));
  EXPECT_THAT(refused("notes.txt"), HasSubstr("neither a pickle nor JSON"));
  EXPECT_THAT(refused(kHang + "/rank0"), HasSubstr("no dump of ranks 1 and 2 was given"));
  EXPECT_THAT(refused(kHang + " --group 1"), HasSubstr("--group: expected a name and ranks"));
  EXPECT_THAT(refused(kHang + " --group 1=0,7"), HasSubstr("the job has 8 ranks"));
  EXPECT_THAT(refused("nowhere"), HasSubstr("nowhere"));
}

}  // namespace cli_explain_test
}  // namespace pipewright::test
