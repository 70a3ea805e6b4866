// PyTorch's schedules of one stage a rank, by hand: what their slices, operators and messages are
// taken for.
#include "traces/chrome/torch_stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_refusal.hpp"
#include "traces/chrome/join_ranks.hpp"
#include "traces/chrome/read_trace.hpp"

namespace pipewright::traces {
namespace torch_stages_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The events of a rank, in microseconds.
class Recording {
 public:
  explicit Recording(int rank) : rank_(rank) {}

  Recording& add(const std::string& name, int from, int to, int thread = 1) {
    const bool annotates = name.find("::") == name.npos;
    events_ += std::string(events_.empty() ? "" : ",") + R"({"ph":"X","pid":7,"tid":)" +
               std::to_string(thread) + R"(,"cat":")" + (annotates ? "user_annotation" : "cpu_op") +
               R"(","name":")" + name + R"(","ts":)" + std::to_string(from) + R"(,"dur":)" +
               std::to_string(to - from) + "}";
    return *this;
  }
  /// One after the other, 10 us each: O operators, A autograd's, S a send, R a receive, which is
  /// waited for until 8 us after its call, P the profiler's next step, Z the optimizer, a
  /// blank nothing.
  Recording& follow(const std::string& what, int autograd_thread = 1) {
    for (const char each : what) {
      const int t = next_;
      next_ += 10;
      if (each == 'O') add("aten::mm", t, t + 9).add("aten::addmm", t + 1, t + 8);
      if (each == 'A') add("autograd::engine::evaluate_function: X", t, t + 9, autograd_thread);
      if (each == 'S') add("c10d::send", t, t + 1).add("gloo:send", t, t + 9);
      if (each == 'R') add("c10d::recv_", t, t + 1).add("gloo:recv", t, t + 9);
      if (each == 'P') add("ProfilerStep#" + std::to_string(step_++), t, t + 1000);
      if (each == 'Z') add("Optimizer.step#AdamW.step", t, t + 9).add("aten::lerp_", t, t + 5);
    }
    return *this;
  }

  std::string file() const { return "rank" + std::to_string(rank_) + ".json"; }
  std::string text() const {
    return R"({"distributedInfo":{"rank":)" + std::to_string(rank_) +
           R"(,"world_size":8},"traceEvents":[)" + events_ + "]}";
  }
  std::vector<TraceTimeline> steps() const { return parse_trace_steps(text(), file()); }

 private:
  int rank_, next_ = 0, step_ = 3;
  std::string events_;
};

/// "1F0 40-100" of the computations, or of the messages.
std::vector<std::string> spans(const TraceTimeline& trace, bool messages = false) {
  std::vector<std::string> found;
  for (const TraceSpan& span : trace.ranks.at(0).spans) {
    if (is_transfer(span.cell.action.kind) != messages) continue;
    found.push_back(to_string(span.cell) + " " + std::to_string(span.start_ns / 1000) + "-" +
                    std::to_string(span.end_ns / 1000));
  }
  return found;
}

std::vector<std::string> names(const TraceTimeline& trace, std::size_t rank = 0) {
  std::vector<std::string> found;
  for (const TraceSpan& span : trace.ranks.at(rank).spans) {
    if (is_compute(span.cell.action.kind)) found.push_back(to_string(span.cell));
  }
  return found;
}

TEST(TorchStages, SlicesOfGPipeHoldTheirMessages) {
  Recording rank(1);
  rank.add("Forward 0", 0, 100).add("c10d::recv_", 2, 5).add("gloo:recv", 4, 40);
  rank.add("aten::mm", 42, 98);
  rank.add("Backward 0", 110, 200).add("autograd::engine::evaluate_function: X", 112, 170);
  rank.add("c10d::send", 175, 190).add("gloo:send", 180, 240);
  const auto steps = rank.steps();
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].ranks.at(0).wait_rule, WaitRule::Receives);
  EXPECT_THAT(spans(steps[0]), ElementsAre("1F0 40-100", "1B0 110-175"));
  EXPECT_THAT(spans(steps[0], true), ElementsAre("1RECV_F0 2-40", "1SEND_B0 175-190"));
}

TEST(TorchStages, OperatorsAndMessagesAreThe1F1BOfAFirstStage) {
  const auto steps = Recording(0).follow("POSOSRAOSRARAOZ").steps();
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].step, 3);
  EXPECT_THAT(names(steps[0]), ElementsAre("0F0", "0F1", "0B0", "0F2", "0B1", "0B2"));
  // The first backward waited for its gradient, and the gradients were divided after the last.
  EXPECT_THAT(spans(steps[0]), ::testing::Contains("0B0 49-59"));
  EXPECT_THAT(spans(steps[0], true), ::testing::Contains("0SEND_F2 70-71"));
}

TEST(TorchStages, OfAMiddleStage) {
  const auto steps = Recording(1).follow("PROSROSRASROSRASRASOZ").steps();
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_THAT(names(steps[0]), ElementsAre("1F0", "1F1", "1B0", "1F2", "1B1", "1B2"));
  std::vector<std::string> messages;
  for (const std::string& span : spans(steps[0], true))
    messages.push_back(span.substr(0, span.find(' ')));
  EXPECT_THAT(messages,
              ElementsAre("1RECV_F0", "1SEND_F0", "1RECV_F1", "1SEND_F1", "1RECV_B0", "1SEND_B0",
                          "1RECV_F2", "1SEND_F2", "1RECV_B1", "1SEND_B1", "1RECV_B2", "1SEND_B2"));
}

/// Targets are cut up before the first receive, and what follows a backward is none.
TEST(TorchStages, OfALastStageWithAutogradOnItsOwnThread) {
  for (const int thread : {1, 2}) {
    const auto steps = Recording(1).follow("POROAOSROAOSROAOSOZ", thread).steps();
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_THAT(names(steps[0]), ElementsAre("1F0", "1B0", "1F1", "1B1", "1F2", "1B2"));
    EXPECT_THAT(spans(steps[0]), ::testing::Contains("1B0 20-29")) << thread;
  }
}

TEST(TorchStages, StepsAreBoundedByTheOptimizerAndAnEvaluationIsNone) {
  const auto steps = Recording(0).follow("OSOSRARAZOSOSOSZOSOSRARAZ").steps();
  ASSERT_EQ(steps.size(), 2U);
  for (const TraceTimeline& step : steps)
    EXPECT_THAT(names(step), ElementsAre("0F0", "0F1", "0B0", "0B1"));
}

TEST(TorchStages, OperatorsWithoutAPipelineAreRefused) {
  for (const char* what : {"OAOAZ", "OSOSOSZ", "RRSSZ"}) {
    EXPECT_THAT(test::refusal([&] { Recording(0).follow(what).steps(); }).message(),
                HasSubstr("holds no action of a pipeline"))
        << what;
  }
}

TEST(TorchStages, NamesOfTheRuntimeGoBefore) {
  Recording rank(3);
  rank.add("PP:1F0", 0, 20).follow("OS").add("PP:1SEND_F0", 20, 30).add("Forward 0", 40, 50);
  EXPECT_THAT(names(rank.steps().at(0)), ElementsAre("1F0"));
}

TEST(TorchStages, AreInTheOrderOfTheRanksOfAPipeline) {
  std::vector<TraceTimeline> files;
  files.push_back(Recording(5).follow("P  ROAS").steps().at(0));
  files.push_back(Recording(2).follow("POS    RA").steps().at(0));
  EXPECT_THAT(names(files[0]), ElementsAre("5F0", "5B0"));
  const TraceTimeline whole = join_ranks(files).trace;
  EXPECT_THAT(names(whole, 0), ElementsAre("0F0", "0B0"));
  EXPECT_THAT(names(whole, 1), ElementsAre("1F0", "1B0"));
}

TEST(TorchStages, ReplicasTogetherAreRefused) {
  std::vector<TraceTimeline> files;
  for (const auto& [rank, what] : {std::pair(0, "POSRA"), std::pair(1, "POSRA"),
                                   std::pair(2, "PROAS"), std::pair(3, "PROAS")}) {
    files.push_back(Recording(rank).follow(what).steps().at(0));
  }
  EXPECT_THAT(test::refusal([&] { join_ranks(files); }).message(),
              HasSubstr("rank 1 is the first or the last of one"));
}

}  // namespace torch_stages_test
}  // namespace pipewright::traces
