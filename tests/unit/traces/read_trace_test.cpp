// Traces read back: our own, PyTorch's, and things that are none.
#include "traces/chrome/read_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/expect_refusal.hpp"
#include "tests/support/traced.hpp"
#include "traces/chrome/gzip.hpp"
#include "traces/chrome/trace.hpp"
#include "traces/chrome/trace_events.hpp"

namespace pipewright::traces {
namespace read_trace_test {

using ::testing::HasSubstr;

/// Spans as lines, sorted, to be compared: lanes may be dealt out over more threads in a file.
std::vector<std::string> lines(const TraceTimeline& trace) {
  std::vector<std::string> found;
  for (const TraceRank& rank : trace.ranks) {
    for (const TraceSpan& s : rank.spans) {
      found.push_back(std::to_string(rank.rank) + " " + std::to_string(static_cast<int>(s.kind)) +
                      " " + to_string(s.cell) + " " + std::to_string(s.start_ns) + " " +
                      std::to_string(s.moving_ns) + " " + std::to_string(s.end_ns));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(ReadTrace, ReadsBackExactlyWhatWasWritten) {
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    const test::Traced t =
        test::traced_schedule("zb-h1", 3, 5, 1, preset.name, "F=1234567,I=1000001,W=999,comm=77");
    const std::string text = chrome_trace(
        t.program, t.timeline, t.costs,
        {.title = "x", .kind = TraceInfo::Kind::Simulated, .metadata = {{"schedule", "zb-h1"}}});
    const TraceTimeline back = parse_trace(gzip(text), "t.json.gz");
    EXPECT_EQ(lines(back), lines(trace_timeline(t.program, t.timeline))) << preset.name;
    EXPECT_EQ(back.makespan_ns, t.timeline.makespan_ns);
    EXPECT_EQ(back.metadata.at("schedule"), "zb-h1");
    EXPECT_EQ(back.ranks[0].lanes[0], "compute");
    EXPECT_TRUE(is_own(back));
  }
}

/// An action is one span, whatever its devices tell one another meanwhile.
TEST(ReadTrace, TakesPartsTogether) {
  const test::Traced t = test::traced_csv(
      "# mesh tp=2\n# parts 0F: a*3 ALL_REDUCE(tp:x)*2 b*5\n# parts 0B: c ALL_REDUCE(tp:y)*1\n"
      "0F0,0B0,0F1,0B1\n",
      {}, "F=16000,B=32000");
  const std::string text = chrome_trace(t.program, t.timeline, t.costs, {.title = "x"});
  EXPECT_EQ(lines(parse_trace(text, "t.json")),
            (std::vector<std::string>{"0 0 0B0 20000 20000 84000", "0 0 0B1 104000 104000 168000",
                                      "0 0 0F0 0 0 20000", "0 0 0F1 84000 84000 104000"}));
}

TEST(ReadTrace, ReadsAStepThatGotStuck) {
  const test::Traced t = test::traced_csv("0SEND_F1,2RECV_F0,2F0\n1SEND_F0,1RECV_F1,1F1\n",
                                          {.issue = Issue::Inline}, "F=1,B=2", true);
  const std::string text = chrome_trace(t.program, t.timeline, t.costs, {.title = "x"});
  const TraceTimeline back = parse_trace(text, "t.json");
  EXPECT_EQ(lines(back), lines(trace_timeline(t.program, t.timeline)));
  ASSERT_FALSE(back.ranks.empty());
  EXPECT_EQ(back.ranks[0].spans.back().kind, SpanKind::Stuck);
}

TEST(ReadTrace, TakesPyTorchNamesAndStartsAtTheFirstAction) {
  // Processes 4711 and 4712, clock since 1970: a double has no nanoseconds there.
  const std::string text = R"json({"schemaVersion":1,"traceEvents":[
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":4712,"tid":9,
     "ts":1700000000000000.001,"dur":1},
    {"ph":"X","cat":"user_annotation","name":"PP:1F0","pid":4712,"tid":9,
     "ts":1700000000000010.123,"dur":2.5},
    {"ph":"X","cat":"user_annotation","name":"PP:0F0","pid":4711,"tid":8,
     "ts":1700000000000007.001,"dur":3},
    {"ph":"i","name":"PP:0F1","pid":4711,"tid":8,"ts":1},
    {"ph":"X","name":"PP::fwd_send (stage 0)","pid":"Spans","tid":"Profiler",
     "ts":3,"dur":1}]})json";
  const TraceTimeline trace = parse_trace(text, "torch.json");
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(lines(trace), (std::vector<std::string>{"0 0 0F0 0 0 3000", "1 0 1F0 3122 3122 5622"}));
  EXPECT_EQ(trace.makespan_ns, 5622);
  EXPECT_FALSE(is_own(trace));
}

TEST(ReadTrace, TakesTheRankThatTheFileNamesAndTheGpuBeforeTheCpu) {
  const std::string text = R"({"distributedInfo":{"backend":"nccl","rank":3},"traceEvents":[
    {"ph":"X","cat":"user_annotation","name":"PP:3F0","pid":99,"tid":1,"ts":0,"dur":1},
    {"ph":"X","cat":"gpu_user_annotation","name":"PP:3F0","pid":0,"tid":7,"ts":5,"dur":20}]})";
  const TraceTimeline trace = parse_trace(text, "rank3.json");
  EXPECT_EQ(lines(trace), (std::vector<std::string>{"3 0 3F0 0 0 20000"}));
}

/// The host launches F0 and the receive of B0 long before they run; the kernel of the receive waits
/// for its message. B0's slice has a kernel of another stream between its own.
TEST(ReadTrace, TakesTheTimesOfTheKernelsThatTheHostLaunched) {
  const auto slice = [](const std::string& name, int from, int to) {
    return R"({"ph":"X","cat":"user_annotation","name":")" + name + R"(","pid":99,"tid":1,"ts":)" +
           std::to_string(from) + R"(,"dur":)" + std::to_string(to - from) + "},";
  };
  const auto kernel = [](const std::string& name, int id, int launched, int from, int to) {
    const std::string correlation = R"("args":{"correlation":)" + std::to_string(id) + "}},";
    return R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":99,"tid":2,"ts":)" +
           std::to_string(launched) + R"(,"dur":1,)" + correlation +
           R"({"ph":"X","cat":"kernel","name":")" + name + R"(","pid":0,"tid":7,"ts":)" +
           std::to_string(from) + R"(,"dur":)" + std::to_string(to - from) + "," + correlation;
  };
  std::string events =
      slice("PP:0F0", 0, 10) + kernel("gemm", 1, 1, 5, 20) + kernel("relu", 2, 8, 21, 40) +
      slice("PP:0SEND_F0", 10, 12) + kernel("ncclDevKernel_SendRecv(x)", 3, 11, 40, 43) +
      slice("PP:0RECV_B0", 12, 14) + kernel("ncclDevKernel_SendRecv(x)", 4, 13, 43, 70) +
      slice("PP:0B0", 14, 30) + kernel("gemm", 5, 15, 71, 90) + kernel("gemm", 6, 16, 90, 110) +
      slice("PP:0REDUCE_GRAD", 30, 32) +
      kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 7, 31, 110, 130) +
      kernel("ncclDevKernel_Broadcast(x)", 8, 33, 200, 210);
  events.pop_back();
  const TraceTimeline trace =
      parse_trace(R"({"distributedInfo":{"rank":0},"traceEvents":[)" + events + "]}", "gpu.json");
  EXPECT_EQ(lines(trace), (std::vector<std::string>{
                              "0 0 0B0 66000 66000 105000", "0 0 0F0 0 0 35000",
                              "0 0 0REDUCE_GRAD 105000 105000 125000",
                              "0 1 0RECV_B0 38000 38000 65000", "0 1 0SEND_F0 35000 35000 38000"}));
  EXPECT_EQ(trace.stray_transfers, 1U);
  EXPECT_TRUE(trace.ranks.at(0).posts.empty());
}

TEST(ReadTrace, TakesTheRankFromTheNameOfAFileThatNamesNone) {
  const std::string text = R"([{"ph":"X","name":"PP:2F0","pid":99,"tid":1,"ts":0,"dur":1}])";
  EXPECT_EQ(parse_trace(text, "traces/rank2.json").ranks.at(0).rank, 2);
  EXPECT_EQ(parse_trace(text, "run_Rank-13_x.json.gz").ranks.at(0).rank, 13);
  EXPECT_EQ(parse_trace(text, "rank/ranking.json").ranks.at(0).rank, 0);
}

/// Where nothing marks the steps, one ends where an action comes again; its weights are gathered
/// before that. The update in front is of a step that the trace does not show.
TEST(ReadTrace, TellsStepsApart) {
  std::string events;
  int at = 0;
  const auto add = [&](const std::string& name) {
    events += (events.empty() ? "" : ",") + std::string(R"({"ph":"X","name":")") + name +
              R"(","pid":9,"tid":1,"dur":5,"ts":)" + std::to_string(at += 10) + "}";
  };
  add("Optimizer.step#AdamW.step");
  for (int step = 0; step < 3; ++step) {
    for (const char* name : {"PP:0UNSHARD", "PP:0F0", "PP:0F1", "PP:0B0", "PP:0B1",
                             "PP:0REDUCE_GRAD", "Optimizer.step#AdamW.step"})
      add(name);
  }
  const auto steps = parse_trace_steps("[" + events + "]", "t.json");
  ASSERT_EQ(steps.size(), 3U);
  for (std::size_t k = 0; k < steps.size(); ++k) {
    EXPECT_EQ(steps[k].step, static_cast<int>(k));
    EXPECT_EQ(steps[k].ranks.at(0).spans.size(), 7U);
    EXPECT_EQ(to_string(steps[k].ranks[0].spans.front().cell), "0UNSHARD");
    EXPECT_EQ(steps[k].makespan_ns, 65'000);
  }
  EXPECT_THAT(test::refusal([&] { parse_trace("[" + events + "]", "t.json"); }).message(),
              HasSubstr("holds 3 steps"));
}

TEST(ReadTrace, TakesABareListAndOurNames) {
  const std::string text = R"([{"ph":"X","name":"F m3 s1","pid":2,"tid":1,"ts":1,"dur":1},
    {"ph":"X","name":"2B3","pid":11,"tid":1,"ts":2e0,"dur":1.0004},
    {"ph":"M","name":"process_name","pid":2,"args":{"name":"rank 1"}}])";
  const TraceTimeline trace = parse_trace(text, "list.json");
  EXPECT_EQ(lines(trace), (std::vector<std::string>{"1 0 1F3 0 0 1000", "1 0 2B3 1000 1000 2000"}));
}

TEST(ReadTrace, KnowsTheNamesItWrites) {
  for (const char* text : {"0F0", "3B12", "2I1", "1W7", "0F5@2", "1SEND_F0", "4RECV_B2", "OPT",
                           "2UNSHARD", "1REDUCE_GRAD", "(0F7;7B3)OVERLAP_F_B"}) {
    std::string name;
    append_slice_name(*parse_cell(text), name);
    const auto cell = cell_of_slice_name(name);
    ASSERT_TRUE(cell) << name;
    EXPECT_EQ(to_string(*cell), text);
  }
  for (const char* text : {"", "F", "F m1", "F s1 m1", "F m-1 s0", "F m1 s0 x", "bubble",
                           "PP:", "G m0 s0", "F m1 s0 + ", "F m99999999999 s0"}) {
    EXPECT_FALSE(cell_of_slice_name(text)) << text;
  }
}

TEST(ReadTrace, ReadsMicrosecondsAsTheyAreWritten) {
  EXPECT_EQ(nanoseconds_of_micros("12.345"), 12345);
  EXPECT_EQ(nanoseconds_of_micros("12.3455"), 12346);
  EXPECT_EQ(nanoseconds_of_micros("12.34549"), 12345);
  EXPECT_EQ(nanoseconds_of_micros("-0.5"), -500);
  EXPECT_EQ(nanoseconds_of_micros("1700000000000000.001"), 1700000000000000001);
  EXPECT_EQ(nanoseconds_of_micros("1.5e3"), 1500000);
  EXPECT_EQ(nanoseconds_of_micros("99999999999999999999"), std::nullopt);
  EXPECT_EQ(nanoseconds_of_micros("1e300"), std::nullopt);
  EXPECT_EQ(nanoseconds_of_micros(""), std::nullopt);
}

struct Bad {
  std::string text, pointer, message;
};

TEST(ReadTrace, RefusesWhatIsNoTrace) {
  const std::string own = R"({"metadata":{"schema":"pipewright.trace/1"},"traceEvents":[)";
  const std::vector<Bad> cases = {
      {"", "byte 1", "is not JSON"},
      {"\x01\x02", "byte 1", "is not JSON"},
      {"{\"traceEvents\":[", "byte 17", "is not JSON"},
      {"{}", "", "has no \"traceEvents\""},
      {"3", "", "has no \"traceEvents\""},
      {"{\"traceEvents\":3}", "", "has no \"traceEvents\""},
      {"[]", "/traceEvents", "no action of a pipeline"},
      {"[1,[2],{\"ph\":\"X\",\"name\":\"matmul\"}]", "/traceEvents", "no action of a pipeline"},
      {R"([7,{"ph":"X","name":"0F0","pid":1,"tid":1,"dur":1}])", "/traceEvents/1/ts", "a time"},
      {R"([{"ph":"X","name":"0F0","pid":1,"tid":1,"ts":"x","dur":1}])", "/traceEvents/0/ts",
       "a time"},
      {R"([{"ph":"X","name":"0F0","pid":1,"tid":1,"ts":0}])", "/traceEvents/0/dur", "a duration"},
      {R"([{"ph":"X","name":"0F0","pid":1,"tid":1,"ts":0,"dur":-1}])", "/traceEvents/0/dur",
       "or more"},
      {R"([{"ph":"X","name":"0F0","pid":1,"tid":1,"ts":1e300,"dur":1}])", "/traceEvents/0/ts",
       "a time"},
      {own + R"({"ph":"X","name":"x","pid":1,"tid":1,"ts":0,"dur":1,"args":{"action":"0Q\n"}}]})",
       "/traceEvents/0/args/action", "found \"0Q \""},
      {own + R"({"ph":"X","name":"x","pid":1,"tid":1,"ts":0,"dur":1,)"
             R"("args":{"action":"1RECV_F0","waited_ns":-4}}]})",
       "/traceEvents/0/args/waited_ns", "0 or more"},
      {R"({"metadata":{"schema":"pipewright.trace/2"},"traceEvents":[]})", "/metadata/schema",
       "this version reads"},
      {std::string(5000, '['), "", "levels deep"},
      {std::string("\x1f\x8b\x08garbage", 10), "", "damaged gzip"},
  };
  for (const Bad& bad : cases) {
    const InputError error = test::refusal([&] { parse_trace(bad.text, "t.json"); });
    EXPECT_EQ(error.file(), "t.json");
    EXPECT_EQ(error.pointer(), bad.pointer) << error.what();
    EXPECT_THAT(error.message(), HasSubstr(bad.message));
    test::expect_one_line(error);
  }
}

TEST(ReadTrace, RefusesGzipThatIsCutShortOrTooLarge) {
  const std::string packed = gzip(std::string(100000, ' '));
  const InputError cut = test::refusal(
      [&] { parse_trace(std::string_view(packed).substr(0, packed.size() - 4), "t.gz"); });
  EXPECT_THAT(cut.message(), HasSubstr("cut short"));
  const InputError large = test::refusal([&] { gunzip(packed, "t.gz", 99999); });
  EXPECT_THAT(large.message(), HasSubstr("unpacks to more than"));
  EXPECT_EQ(gunzip(packed, "t.gz", 100000).size(), 100000U);
}

TEST(ReadTrace, SaysWhichFileIsMissing) {
  const InputError error = test::refusal([] { read_trace("/nowhere/trace.json"); });
  EXPECT_EQ(error.file(), "/nowhere/trace.json");
}

}  // namespace read_trace_test
}  // namespace pipewright::traces
