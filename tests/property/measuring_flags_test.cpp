// Every flag of tune says what it does beside --measure; the command's own table is walked, so that
// a flag without a statement fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "tests/support/command_runner.hpp"
#include "tools/cli/command.hpp"

namespace pipewright::tools {
namespace measuring_flags_test {

/// What a flag of tune does beside --measure.
struct BesideMeasure {
  enum class Does : std::uint8_t { Nothing, Changes, Refused, Elsewhere };
  Does does = Does::Nothing;
  std::string value;
};

const std::map<std::string, BesideMeasure, std::less<>>& beside_measure() {
  using Does = BesideMeasure::Does;
  static const std::map<std::string, BesideMeasure, std::less<>> kStatements = {
      {"--threads", {Does::Nothing, "1"}},
      {"--exhaustive", {Does::Nothing, ""}},  // of what is searched; here it is listed
      {"--budget", {Does::Nothing, "1s"}},
      {"--no-synthesis", {Does::Nothing, ""}},  // measured configurations have named schedules
      {"--out", {Does::Nothing, "best.json"}},
      {"--resume", {Does::Nothing, "journal"}},
      {"--seed", {Does::Nothing, "3"}},  // of a synthesis, as the next two
      {"--prove", {Does::Nothing, ""}},
      {"--objective", {Does::Nothing, "span"}},
      {"--run-timeout", {Does::Nothing, "1000s"}},  // longer than any of these runs
      {"--time-limit", {Does::Changes, "1ns"}},
      {"--runs", {Does::Changes, "1"}},
      {"--within", {Does::Changes, "50"}},
      {"--confidence", {Does::Changes, "50"}},
      {"--explain", {Does::Refused, "tp=2"}},
      {"--front", {Does::Refused, ""}},
      {"--synthesise", {Does::Refused, ""}},
      {"--transport", {Does::Refused, "tcp"}},
      {"--top", {Does::Refused, "3"}},
      {"--html", {Does::Refused, "t.html"}},
      {"--samples", {Does::Refused, "9"}},
      {"--pp", {Does::Refused, "2"}},
      {"--micro-batches", {Does::Refused, "2"}},
      {"--vpp", {Does::Refused, "2"}},
      {"--param", {Does::Refused, "group=2"}},
      {"--jobs", {Does::Refused, "fused"}},
      {"--placement", {Does::Refused, "loop"}},
      {"--cost", {Does::Refused, "F=1"}},
      {"--mem", {Does::Refused, "F=1"}},
      {"--rank-cost", {Does::Refused, "F=1"}},
      {"--rank-mem", {Does::Refused, "F=1"}},
      {"--message-bytes", {Does::Refused, "1"}},
      // tests/faults/measuring_test.cpp, and jobs that are planned layer by layer.
      {"--measure", {Does::Elsewhere, ""}},
      {"--read", {Does::Elsewhere, ""}},
      {"--among", {Does::Elsewhere, ""}},
      {"--profile", {Does::Elsewhere, ""}},
      {"--collectives", {Does::Elsewhere, ""}},
  };
  return kStatements;
}

/// What was measured, without the time that it took.
Json measured_with(const std::string& words, const test::Folder& folder) {
  const auto done = test::pipewright(
      "tune job.json --json -q --among among --read 'step_ms=([0-9]+) ms' --measure "
      "'echo $((100 - 9 * {pp} + {tp})) ms' " +
          words,
      folder);
  EXPECT_EQ(done.status, 0) << words << done.err;
  Json measured = parse_json(done.out, "measured").at("measuring");
  for (Json& trial : measured.at("trials")) trial.erase("took_ns");
  return measured;
}

TEST(FlagsOfMeasuring, SayWhatTheyDo) {
  const std::vector<Command> commands = all_commands();
  const auto tune = std::find_if(commands.begin(), commands.end(),
                                 [](const Command& each) { return each.name == "tune"; });
  ASSERT_NE(tune, commands.end());
  const test::Folder folder;
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": {"transformer": {
      "hidden": 1024, "layers": 8, "heads": 8, "vocabulary": 50304, "sequence": 1024}},
      "cluster": {"preset": "dgx-a100", "devices": 8}, "global_batch": 64})");
  folder.write("among", "tp=1,pp=1\ntp=2,pp=1\ntp=1,pp=2\ntp=1,pp=4\ntp=2,pp=4\n");
  const Json plain = measured_with("", folder);
  ASSERT_GT(plain.at("trials").size(), 1U);  // so that a flag can take one away
  for (const Flag& flag : tune->flags) {
    const auto statement = beside_measure().find(flag.name);
    ASSERT_NE(statement, beside_measure().end())
        << "the flag " << flag.name << " has no statement: say what it does beside --measure";
    const auto& [does, value] = statement->second;
    const std::string words = std::string(flag.name) + " " + value;
    if (does == BesideMeasure::Does::Nothing) {
      EXPECT_EQ(measured_with(words, folder), plain) << words;
    }
    if (does == BesideMeasure::Does::Changes) {
      EXPECT_NE(measured_with(words, folder), plain) << words;
    }
    if (does != BesideMeasure::Does::Refused) continue;
    const auto refused = test::pipewright(
        "tune job.json --read 'step_ms=([0-9]+)' --measure 'echo {tp}' " + words, folder);
    EXPECT_EQ(refused.status, 2) << words;
    EXPECT_NE(refused.err.find(flag.name), std::string::npos) << refused.err;
  }
}

}  // namespace measuring_flags_test
}  // namespace pipewright::tools
