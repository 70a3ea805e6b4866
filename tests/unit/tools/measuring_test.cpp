// The small languages of tune --measure: commands with placeholders, patterns of output, records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "planner/export/export.hpp"
#include "tools/measuring/command_template.hpp"
#include "tools/measuring/output_reader.hpp"
#include "tools/measuring/trial_record.hpp"

namespace pipewright::tools {
namespace measuring_test {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string filled_with_names(std::string_view text) {
  return filled(read_command_template(text),
                [](const std::string& name) { return "<" + name + ">"; });
}

std::string refusal_of(const std::string& text) {
  try {
    (void)read_command_template(text);
  } catch (const InputError& error) {
    return error.message();
  }
  return "";
}

TEST(CommandTemplate, FillsNamesAndLeavesTheShellsOwnBraces) {
  EXPECT_EQ(filled_with_names("run --tp {tp} {flags:megatron}"), "run --tp <tp> <flags:megatron>");
  EXPECT_EQ(filled_with_names("{pp}{dp}"), "<pp><dp>");
  for (const char* plain : {"echo ${tp}", "awk '{print $1}'", "x {", "{}", "{TP}", "{ tp }",
                            R"(echo '{"a": {"b": 1}}')", "{'tp'}"})
    EXPECT_EQ(filled_with_names(plain), plain);
  EXPECT_THAT(refusal_of("run {micro_bach}"), HasSubstr("did you mean \"micro_batch\"?"));
  EXPECT_THAT(refusal_of("run {flags:deepspeed}"), HasSubstr("unknown placeholder"));
  EXPECT_NE(refusal_of(" \n"), "");
}

TEST(CommandTemplate, HasAFileForEveryFormatOfExport) {
  for (const planner::ExportFormat& format : planner::export_formats())
    EXPECT_THAT(placeholder_names(), Contains("file:" + std::string(format.name)));
  for (const std::string& name : placeholder_names())
    EXPECT_EQ(filled_with_names("{" + name + "}"), "<" + name + ">");
}

OutputReading reading_of(const std::vector<std::string>& patterns, std::string_view output) {
  std::vector<OutputPattern> read;
  for (const std::string& text : patterns) read.push_back(read_output_pattern(text));
  OutputReader reader(read);
  reader.read(output);
  return reader.finish();
}

TEST(OutputReader, TakesTheMedianStepAndTheLargestPeak) {
  const auto reading =
      reading_of({R"(step_ms=iteration .*: ([0-9.]+) ms)", "peak_gib=max ([0-9.]+)"},
                 "iteration 1: 900 ms\nmax 1.5\niteration 2: 101.5 ms | max 2\n"
                 "iteration 3: 100.5 ms\nmax 1");
  ASSERT_TRUE(reading.step && reading.peak);
  EXPECT_EQ(reading.step->value, 101'500'000);
  EXPECT_EQ(reading.peak->value, std::int64_t{2} << 30);
  EXPECT_EQ(reading.steps, 3);
  EXPECT_FALSE(reading.says_out_of_memory);
}

TEST(OutputReader, KnowsGroupsByTheirNames) {
  for (const char* pattern : {R"(\((?<step_s>[0-9.]+) s, (?:about )?(?<peak_mib>\d+))",
                              R"([(](?P<step_s>[0-9.]+) s, (?:about )?(?P<peak_mib>\d+))"}) {
    const auto reading = reading_of({pattern}, "(1.5 s, about 7 MiB)\r(2.5 s, 9 MiB)");
    ASSERT_TRUE(reading.step && reading.peak) << pattern;
    EXPECT_EQ(reading.step->value, 2'000'000'000);
    EXPECT_EQ(reading.peak->value, 9 << 20);
  }
}

/// By trying one way after another it would take 2^8000 of them.
TEST(OutputReader, TakesNoLongerThanALineIsLong) {
  const std::string line = std::string(8000, '1') + " s\n";
  EXPECT_FALSE(reading_of({"step_s=((1*)*)*x"}, line).step);
  EXPECT_TRUE(reading_of({"step_s=^.*(1) s$"}, line).step);
  EXPECT_THROW((void)read_output_pattern("step_s=(1)(?= s)"), InputError);
}

TEST(OutputReader, HearsOfMemoryAndSkipsWhatIsNoTime) {
  const std::vector<std::string> step{"step_s=t ([^ ]+)"};
  EXPECT_TRUE(reading_of(step, "torch.OutOfMemoryError: CUDA").says_out_of_memory);
  EXPECT_TRUE(reading_of(step, "CUDA out of memory. Tried").says_out_of_memory);
  EXPECT_TRUE(reading_of({step[0], "out_of_memory=no space"}, "no space").says_out_of_memory);
  EXPECT_FALSE(reading_of(step, "t nan\nt -3\nt 0\nt x\nt 1e99").step);
  // Longer than what regular expressions stand, and bytes that are no text.
  EXPECT_FALSE(reading_of(step, std::string(1'000'000, 'a') + '\0' + "\xff").step);
}

TEST(OutputReader, RefusesPatternsThatReadNothing) {
  for (const char* wrong : {"", "step_ms", "step_ms=", "step_ms=abc", "time ([0-9]+)", "step_ms=(",
                            "(?<step>[0-9]+)", "(?<step_ms>", "step_ms=([z-a])"})
    EXPECT_THROW((void)read_output_pattern(wrong), InputError) << wrong;
  try {
    (void)read_output_pattern("(?<step_mss>[0-9]+)");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.message(), HasSubstr("did you mean \"step_ms\"?"));
  }
}

TEST(TrialRecord, IsReadAsItWasWritten) {
  for (const TrialRecord& record :
       {TrialRecord{TrialOutcome::Ran, Nanoseconds(5), Bytes(7), Nanoseconds(9), ""},
        TrialRecord{TrialOutcome::OutOfMemory, {}, {}, Nanoseconds(9), ""},
        TrialRecord{TrialOutcome::TimedOut, {}, {}, Nanoseconds(9), "ended"},
        TrialRecord{TrialOutcome::Failed, {}, {}, Nanoseconds(9), "line \"1\"\t\xff"}}) {
    const std::string text = text_of(record);
    EXPECT_EQ(text.find('\n'), text.npos);
    EXPECT_EQ(text_of(read_trial_record(text)), text);
  }
  for (const char* wrong : {"", "{}", R"({"outcome":"ran","took_ns":1})",
                            R"({"outcome":"lost","took_ns":1,"step_ns":2})"})
    EXPECT_THROW((void)read_trial_record(wrong), InputError) << wrong;
}

}  // namespace measuring_test
}  // namespace pipewright::tools
