// The writer on small Programs, and the viewers' rules on many.
#include "traces/chrome/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "tests/support/trace_rules.hpp"
#include "tests/support/traced.hpp"
#include "traces/chrome/gzip.hpp"

namespace pipewright::traces {
namespace chrome_trace_test {

using nlohmann::json;
using ::testing::IsEmpty;

std::string text_of(const test::Traced& t, const TraceInfo& info = {.title = "test"}) {
  return chrome_trace(t.program, t.timeline, t.costs, info);
}

/// The events whose member `key` is `value`.
std::vector<json> events(const std::string& text, const char* key, const std::string& value) {
  std::vector<json> found;
  const json trace = json::parse(text);
  for (const json& event : trace["traceEvents"]) {
    if (event.value(key, "") == value) found.push_back(event);
  }
  return found;
}

// In us: F 10, B 20, comm 5 on two ranks, one micro-batch: 0F0 [0,10], message [10,15], 1F0
// [15,25], 1B0 [25,45], message [45,50], 0B0 [50,70].
test::Traced two_ranks(std::string_view preset) {
  return test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset(preset),
                          "F=10us,B=20us,comm=5us");
}

TEST(ChromeTrace, WritesEachComputationWithExactMicroseconds) {
  const std::string text = text_of(two_ranks("ideal"));
  EXPECT_NE(text.find(R"({"ph":"X","pid":2,"tid":1,"ts":15.000,"dur":10.000,"cat":"compute",)"
                      R"("name":"F m0 s1","cname":"thread_state_runnable",)"
                      R"("args":{"action":"1F0","stage":1,"micro_batch":0,"waited_ns":15000}})"),
            std::string::npos)
      << text;
  EXPECT_EQ(events(text, "cat", "compute").size(), 4U);
}

TEST(ChromeTrace, AnArrowLeadsFromTheProducerToTheConsumer) {
  const std::string text = text_of(two_ranks("ideal"));
  const auto tails = events(text, "ph", "s"), heads = events(text, "ph", "f");
  ASSERT_EQ(tails.size(), 2U);
  ASSERT_EQ(heads.size(), 2U);
  // The activation: a nanosecond before the end of 0F0, a nanosecond behind the start of 1F0.
  EXPECT_EQ(tails[0]["pid"], 1);
  EXPECT_DOUBLE_EQ(tails[0]["ts"], 9.999);
  EXPECT_EQ(heads[0]["pid"], 2);
  EXPECT_DOUBLE_EQ(heads[0]["ts"], 15.001);
  EXPECT_EQ(heads[0]["bp"], "e");
  EXPECT_EQ(tails[0]["id"], heads[0]["id"]);
}

TEST(ChromeTrace, ShowsWhatATransferWaitedForApartFromItsMovement) {
  // Under rendezvous the receive of 1F0 is posted at 0 and moves from 10 to 15 us.
  const std::string text = text_of(two_ranks("torch"));
  const auto waits = events(text, "name", "wait RECV_F m0 s1");
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits[0]["cat"], "wait");
  EXPECT_DOUBLE_EQ(waits[0]["ts"], 0.0);
  EXPECT_DOUBLE_EQ(waits[0]["dur"], 10.0);
  const auto moves = events(text, "name", "RECV_F m0 s1");
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_DOUBLE_EQ(moves[0]["ts"], 10.0);
  EXPECT_DOUBLE_EQ(moves[0]["dur"], 5.0);
  EXPECT_EQ(moves[0]["args"]["peer"], 0);
  EXPECT_EQ(moves[0]["args"]["waited_ns"], 10000);
}

TEST(ChromeTrace, NamesBubblesAndTheirCause) {
  const std::string text = text_of(two_ranks("ideal"));
  const auto data = events(text, "name", "waiting for data");
  ASSERT_EQ(data.size(), 1U);  // rank 0 from 10 us until 1B0 has ended
  EXPECT_DOUBLE_EQ(data[0]["ts"], 10.0);
  EXPECT_DOUBLE_EQ(data[0]["dur"], 35.0);
  EXPECT_EQ(data[0]["args"]["before"], "0B0");
  EXPECT_EQ(data[0]["args"]["waits_for"], "1B0");
  EXPECT_EQ(data[0]["args"]["of_rank"], 1);
  EXPECT_EQ(events(text, "name", "waiting for a transfer").size(), 1U);
  EXPECT_EQ(events(text, "name", "fill").size(), 1U);
  EXPECT_EQ(events(text, "name", "drain").size(), 1U);
}

TEST(ChromeTrace, CountsActivationsAtEachChangeAndAtTheEnd) {
  const std::string text = text_of(two_ranks("ideal"));
  std::vector<std::pair<double, int>> rank1;
  for (const json& e : events(text, "name", "activations")) {
    if (e["pid"] == 2) rank1.emplace_back(e["ts"], e["args"]["live"]);
  }
  const std::vector<std::pair<double, int>> expected = {{0, 0}, {15, 1}, {45, 0}, {70, 0}};
  EXPECT_EQ(rank1, expected);
  EXPECT_THAT(events(text, "name", "memory"), IsEmpty()) << "there is no memory table";
}

TEST(ChromeTrace, CountsBytesWhereMemoryIsKnown) {
  test::Traced t = two_ranks("ideal");
  t.costs.memory = {{Bytes(100), Bytes(-30), Bytes(-70), Bytes(1000)},
                    {Bytes(50), Bytes(-50), Bytes(0), Bytes(7)}};
  const auto memory = events(text_of(t), "name", "memory");
  // Rank 0: 0 at 0 (F starts there, so 100), 0 after 0B0 ended at 70 us, which is the end.
  ASSERT_GE(memory.size(), 2U);
  EXPECT_EQ(memory[0]["args"]["constant bytes"], 1000);
  EXPECT_EQ(memory[0]["args"]["activation bytes"], 100);
  EXPECT_DOUBLE_EQ(memory[1]["ts"], 70.0);
  EXPECT_EQ(memory[1]["args"]["activation bytes"], 0);
}

TEST(ChromeTrace, CountsOlderWeightsWhereVersionsAreNamed) {
  test::Traced t = test::traced_csv("0F0@0,0F1@0,0B0@0,OPT,0B1@0,OPT\n",
                                    comm_policy_preset("torch"), "F=1000,B=2000,OPT=500");
  t.costs.memory = {{Bytes(100), Bytes(-30), Bytes(-70), Bytes(1000)}};
  t.costs.memory[0].version = Bytes(400);
  std::vector<std::pair<double, int>> kept;
  for (const json& e : events(text_of(t), "name", "older weights"))
    kept.emplace_back(e["ts"], e["args"]["bytes"]);
  // From the first OPT's end to that of 0B1; the rest is where activations change.
  const std::vector<std::pair<double, int>> expected = {{0, 0},      {1000, 0}, {4000, 0},
                                                        {4500, 400}, {6500, 0}, {7000, 0}};
  EXPECT_EQ(kept, expected);
}

TEST(ChromeTrace, SaysInTheMetadataWhatItShows) {
  const TraceInfo info{.title = "a \"title\"\nof two lines \xff",
                       .kind = TraceInfo::Kind::Measured,
                       .metadata = {{"schedule", "1f1b"}, {"tool", "another"}}};
  const json metadata = json::parse(text_of(two_ranks("torch"), info))["metadata"];
  EXPECT_EQ(metadata["schema"], "pipewright.trace/1");
  EXPECT_EQ(metadata["tool"], "pipewright");
  EXPECT_EQ(metadata["title"], "a \"title\" of two lines ?");
  EXPECT_EQ(metadata["timeline"], "measured");
  EXPECT_EQ(metadata["policy"], "torch-gloo");
  EXPECT_EQ(metadata["schedule"], "1f1b");
  EXPECT_EQ(metadata["makespan_ns"], 70000);
  EXPECT_EQ(metadata["finished"], "yes");
}

TEST(ChromeTrace, ProcessLabelsGiveBusyAndPeak) {
  // Each rank computes 30 of 70 us: 42.86 %.
  const auto labels = events(text_of(two_ranks("ideal")), "name", "process_labels");
  ASSERT_EQ(labels.size(), 2U);
  EXPECT_EQ(labels[0]["args"]["labels"], "busy 43%,peak 1");
}

TEST(ChromeTrace, ABusyShareIsRoundedHalfUp) {
  // A rank computes F + B of 2 (F + B + comm).
  const std::pair<const char*, const char*> shares[] = {
      {"F=50us,B=75us,comm=375us", "busy 13%,peak 1"},        // 12.5 %
      {"F=50us,B=74999ns,comm=375001ns", "busy 12%,peak 1"},  // 12.4999 %
      {"F=50us,B=75001ns,comm=374999ns", "busy 13%,peak 1"},  // 12.5001 %
      {"F=10us,B=40us,comm=4950us", "busy 1%,peak 1"},        // 0.5 %
      {"F=10us,B=39999ns,comm=4950001ns", "busy 0%,peak 1"},  // 0.4999 %
      {"F=10us,B=20us,comm=0", "busy 50%,peak 1"},
      {"F=40000s,B=35000s,comm=25000s", "busy 38%,peak 1"},  // 37.5 %
  };
  for (const auto& [costs, label] : shares) {
    const auto traced = test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), costs);
    EXPECT_EQ(events(text_of(traced), "name", "process_labels").at(0)["args"]["labels"], label);
  }
}

TEST(ChromeTrace, AStepThatGotStuckIsWrittenWithItsHeads) {
  // Issue 172668: each rank sends before it receives, inline and without a buffer.
  const test::Traced t = test::traced_csv("0SEND_F1,2RECV_F0,2F0\n1SEND_F0,1RECV_F1,1F1\n",
                                          {.issue = Issue::Inline}, "F=1000,B=2000,comm=500", true);
  ASSERT_FALSE(t.finished);
  const std::string text = text_of(t);
  EXPECT_THAT(test::trace_facts(text).problems, IsEmpty());
  const auto stuck = events(text, "cat", "stuck");
  ASSERT_EQ(stuck.size(), 2U);
  EXPECT_EQ(stuck[0]["name"], "stuck SEND_F m1 s0");
  EXPECT_EQ(stuck[0]["cname"], "terrible");
  EXPECT_EQ(stuck[1]["name"], "stuck SEND_F m0 s1");
  EXPECT_GT(stuck[0]["dur"], 0.0);
  EXPECT_EQ(json::parse(text)["metadata"]["finished"], "no");
}

TEST(ChromeTrace, APairShowsBothItsActions) {
  const test::Traced t = test::traced_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n",
                                          comm_policy_preset("torch"), "F=1000,B=2000");
  const auto pairs = events(text_of(t), "name", "F m1 s0 + B m0 s0");
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ(pairs[0]["args"]["action"], "(0F1;0B0)OVERLAP_F_B");
}

struct Sample {
  const char* schedule;
  int ranks, micro_batches, chunks;
};

TEST(ChromeTrace, ObeysTheViewersRulesForEveryScheduleAndPolicy) {
  const std::vector<Sample> samples = {
      {"naive", 3, 4, 1}, {"gpipe", 4, 6, 1}, {"1f1b", 4, 8, 1},        {"1f1b", 5, 3, 1},
      {"zb-h1", 4, 7, 1}, {"1f1b", 1, 3, 1},  {"interleaved", 4, 8, 2}, {"interleaved", 2, 4, 3}};
  // One nanosecond, zero, and latency longer than the work: the edges of what can be drawn.
  for (const char* costs : {"F=1,I=1,W=1", "F=3000,I=2500,W=0,comm=700", "F=0,I=0,W=0,comm=5",
                            "F=2,I=1,W=1,comm=40", "F=10,I=9,W=8,comm=1"}) {
    for (const CommPolicyPreset& preset : comm_policy_presets()) {
      for (const Sample& s : samples) {
        const test::Traced t = test::traced_schedule(s.schedule, s.ranks, s.micro_batches, s.chunks,
                                                     preset.name, costs);
        const test::TraceFacts facts = test::trace_facts(text_of(t));
        EXPECT_THAT(facts.problems, IsEmpty())
            << s.schedule << " " << s.ranks << " " << preset.name << " " << costs;
        EXPECT_EQ(facts.processes, s.ranks);
      }
    }
  }
}

TEST(ChromeTrace, EveryTransferHasAnArrowWhereWorkTakesTime) {
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    const test::Traced t = test::traced_schedule("1f1b", 4, 8, 1, preset.name, "F=1,B=1,comm=0");
    if (!t.finished) continue;
    // Three edges, eight micro-batches, forward and back.
    EXPECT_EQ(test::trace_facts(text_of(t)).arrows, 48) << preset.name;
  }
}

TEST(ChromeTrace, StretchesTimesTooShortForViewers) {
  const test::Traced t =
      test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), "F=1,B=2,comm=1");
  const std::string text = text_of(t);
  // 0F0 takes 1 ns, shown as 1 us; arguments and metadata stay true.
  const auto first = events(text, "name", "F m0 s1");
  ASSERT_EQ(first.size(), 1U);
  EXPECT_DOUBLE_EQ(first[0]["ts"], 2.0);
  EXPECT_DOUBLE_EQ(first[0]["dur"], 1.0);
  EXPECT_EQ(first[0]["args"]["waited_ns"], 2);
  EXPECT_EQ(json::parse(text)["metadata"]["time_scale"], 1000);
  EXPECT_EQ(json::parse(text)["metadata"]["makespan_ns"], 8);
  EXPECT_EQ(events(text, "name", "process_labels")[0]["args"]["labels"],
            "busy 38%,peak 1,1 ns shown as 1 us");
}

TEST(ChromeTrace, LeavesOutArrowsToSlicesThatAViewerWouldMiss) {
  // F takes 20 us and B 0.9 us: forward arrows only.
  const test::Traced t =
      test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), "F=20us,B=900");
  const std::string text = text_of(t);
  EXPECT_EQ(test::trace_facts(text).arrows, 1);
  EXPECT_EQ(json::parse(text)["metadata"]["time_scale"], 1);
}

/// An action with parts takes no time beside them.
TEST(ChromeTrace, ArrowsLeadFromTheLastPartToTheFirst) {
  const test::Traced t =
      test::traced_csv("# parts 0F: first*3 last\n# parts 1F: first last*3\n0F0,0B0\n1F0,1B0\n",
                       comm_policy_preset("ideal"), "F=20us,B=20us,comm=5us");
  const std::string text = text_of(t);
  const auto tails = events(text, "ph", "s"), heads = events(text, "ph", "f");
  ASSERT_EQ(tails.size(), 2U) << text;
  EXPECT_DOUBLE_EQ(tails[0]["ts"], 19.999);
  EXPECT_DOUBLE_EQ(heads[0]["ts"], 25.001);
}

TEST(ChromeTrace, TheSameInputGivesTheSameBytes) {
  const test::Traced t = test::traced_schedule("zb-h1", 4, 8, 1, "torch", "F=3,I=2,W=1,comm=1");
  EXPECT_EQ(text_of(t), text_of(t));
  EXPECT_EQ(gzip(text_of(t)), gzip(text_of(t)));
}

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("pipewright-trace-" +
               std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ChromeTrace, WritesPlainAndCompressedFiles) {
  const TemporaryFolder folder;
  const test::Traced t = two_ranks("torch");
  const TraceInfo info{.title = "test"};
  write_chrome_trace(folder.path() / "t.json", t.program, t.timeline, t.costs, info);
  write_chrome_trace(folder.path() / "t.json.gz", t.program, t.timeline, t.costs, info);
  EXPECT_EQ(bytes_of(folder.path() / "t.json"), text_of(t));
  const std::string packed = bytes_of(folder.path() / "t.json.gz");
  EXPECT_TRUE(is_gzip(packed));
  EXPECT_EQ(gunzip(packed, "t.json.gz", 1 << 20), text_of(t));
}

TEST(ChromeTrace, AFileThatCannotBeWrittenLeavesNothingBehind) {
  const TemporaryFolder folder;
  const test::Traced t = two_ranks("torch");
  EXPECT_THROW(write_chrome_trace(folder.path() / "none" / "t.json.gz", t.program, t.timeline,
                                  t.costs, {.title = "test"}),
               MachineError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace chrome_trace_test
}  // namespace pipewright::traces
