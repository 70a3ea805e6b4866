// What-ifs whose answers are known: closed forms of 1F1B, one slow rank, one slow link; and how
// changes are written.
#include "sim/what_if/what_if.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/cluster/cluster.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::sim {
namespace what_if_test {

constexpr int kRanks = 4, kMicroBatches = 8;
constexpr std::int64_t kF = 1000, kB = 2000;
constexpr std::int64_t kStep = (kMicroBatches + kRanks - 1) * (kF + kB);

/// 1F1B, a stage a rank.
struct Setting {
  Program program =
      lower(planner::make_order("1f1b", {.ranks = kRanks, .micro_batches = kMicroBatches}),
            comm_policy_preset("ideal"));
  CostTable costs =
      CostTable::uniform(kRanks, {.f = Nanoseconds(kF), .b = Nanoseconds(kB)}, Nanoseconds(0));

  std::int64_t step_with(const std::string& changes) const {
    const TimedProgram timed(program, costs);
    return what_if(timed, timeline(), parse_changes(changes, "a test")).makespan_ns.value();
  }
  Timeline timeline() const { return simulate(program, costs).timeline; }
  std::vector<WhatIf> all() const { return what_ifs(TimedProgram(program, costs), timeline()); }
};

std::string text_of(const WhatIf& what_if) { return to_string(what_if.changes); }

TEST(WhatIfs, OfEqualStagesFollowTheClosedForm) {
  const Setting s;
  EXPECT_EQ(s.step_with("F=1"), kStep);
  EXPECT_EQ(s.step_with("F=0.9"), (kMicroBatches + kRanks - 1) * (kF * 9 / 10 + kB));
  EXPECT_EQ(s.step_with("F=0.5,B=0.5"), kStep / 2);
  EXPECT_EQ(s.step_with("stages=mean"), kStep);
  EXPECT_EQ(s.step_with("micro-batches=mean"), kStep);
  // The others are as slow as before: one micro-batch is faster on its way.
  EXPECT_EQ(s.step_with("rank:1=0.9"), kStep - (kF + kB) / 10);
  EXPECT_EQ(s.step_with("stage:1=0.9"), kStep - (kF + kB) / 10);
  // The first F is on the only way into the step.
  EXPECT_EQ(s.step_with("action:0F0=0"), kStep - kF);
}

TEST(WhatIfs, OfMessages) {
  Setting s;
  s.costs =
      CostTable::uniform(kRanks, {.f = Nanoseconds(kF), .b = Nanoseconds(kB)}, Nanoseconds(100));
  EXPECT_EQ(s.step_with("messages=0"), kStep);
  EXPECT_EQ(s.step_with("link:0-1=0,link:1-2=0,link:2-3=0,link:1-0=0,link:2-1=0,link:3-2=0"),
            kStep);
  CostTable faster = s.costs;
  faster.every_route.latency = Nanoseconds(90);
  EXPECT_EQ(s.step_with("messages=0.9"), simulate(s.program, faster).timeline.makespan_ns);
  EXPECT_EQ(s.step_with("messages=0.9,messages=0.5"), s.step_with("messages=0.45"));
}

TEST(WhatIfs, OfAHeavyLastStage) {
  Setting s;
  s.costs.stages.back() = {.f = Nanoseconds(2 * kF), .b = Nanoseconds(2 * kB)};
  const std::int64_t mean = kStep * 5 / 4;  // five quarters of the work, on all alike
  EXPECT_EQ(s.step_with("stages=mean"), mean);
  EXPECT_EQ(s.step_with("rank:3=median"), kStep);
  EXPECT_EQ(s.step_with("rank:3=0.5"), kStep);
  EXPECT_EQ(s.step_with("rank:0=median"), s.step_with("F=1")) << "no straggler";
  const std::vector<WhatIf> all = s.all();
  EXPECT_EQ(text_of(all.front()), "rank:3=median");
  EXPECT_EQ(all.front().gain_ns, s.timeline().makespan_ns - kStep);
  EXPECT_EQ(text_of(all[1]), "stages=mean");
}

TEST(WhatIfs, SayForHowLongTheyAreOnThePath) {
  Setting s;
  s.costs.stages[1].f = Nanoseconds(10 * kF);
  const auto all = s.all();
  const auto rank = std::find_if(all.begin(), all.end(), [](const WhatIf& what_if) {
    return text_of(what_if) == "rank:1=0.9";
  });
  ASSERT_NE(rank, all.end());
  // All of its F, and all of its B but the two for which it has time while the last micro-batch is
  // on its way down and back.
  EXPECT_EQ(rank->path_ns, kMicroBatches * 10 * kF + (kMicroBatches - 2) * kB);
  EXPECT_EQ(rank->gain_ns, rank->path_ns / 10);
}

TEST(WhatIfs, LeaveOutWhatChangesNothing) {
  for (const WhatIf& what_if : Setting().all()) {
    EXPECT_NE(text_of(what_if), "stages=mean");
    EXPECT_NE(text_of(what_if), "micro-batches=mean");
    EXPECT_NE(text_of(what_if), "messages=0") << "they take no time";
    EXPECT_FALSE(text_of(what_if).ends_with("=median")) << text_of(what_if);
    EXPECT_FALSE(text_of(what_if).starts_with("stage:")) << "a stage is a rank";
  }
}

TEST(WhatIfs, AddPartsAndPairsUp) {
  Setting s;
  s.program = lower(planner::make_order("dualpipe", {.ranks = 4, .micro_batches = 8}),
                    comm_policy_preset("ideal"));
  s.costs = CostTable::uniform(
      s.program.stages,
      {.f = Nanoseconds(10), .i = Nanoseconds(10), .w = Nanoseconds(10), .b = Nanoseconds(20)});
  CostTable faster = s.costs;
  for (StageCosts& stage : faster.stages) stage.f = Nanoseconds(5);
  EXPECT_EQ(s.step_with("F=0.5"), simulate(s.program, faster).timeline.makespan_ns);
  EXPECT_LT(s.step_with("F=0.5"), s.step_with("F=1"));
  // With a time of its own a pair is not made of an F and a B.
  s.costs.overlapped_pair = faster.overlapped_pair = Nanoseconds(26);
  EXPECT_EQ(s.step_with("F=0.5"), simulate(s.program, faster).timeline.makespan_ns);
  faster = s.costs;
  faster.overlapped_pair = Nanoseconds(13);
  EXPECT_EQ(s.step_with("pairs=0.5"), simulate(s.program, faster).timeline.makespan_ns);
}

TEST(WhatIfs, OnSharedLinks) {
  for (const Sharing sharing : {Sharing::Serial, Sharing::Fair}) {
    Setting s;
    s.program =
        lower(planner::make_order("gpipe", {.ranks = kRanks, .micro_batches = kMicroBatches}),
              CommPolicy{});
    s.costs.activation_bytes.assign(kRanks - 1, Bytes(1000));
    s.costs.gradient_bytes.assign(kRanks - 1, Bytes(3000));
    const RouteCosts way{Nanoseconds(100), 2e9, {0}};
    s.costs.route_of_edge.assign(kRanks * kRanks, way);
    s.costs.links = {{"switch", 2e9, sharing}};
    CostTable half = s.costs;
    half.links.front().bytes_per_second *= 2;
    for (RouteCosts& each : half.route_of_edge)
      each = {Nanoseconds(50), each.bytes_per_second * 2, {0}};
    EXPECT_EQ(s.step_with("messages=0.5"), simulate(s.program, half).timeline.makespan_ns);
    EXPECT_LT(s.step_with("messages=0.5"), s.step_with("messages=1"));
    EXPECT_LT(s.step_with("messages=0"), s.step_with("messages=0.5"));
    // The messages of one link, half as large.
    half = s.costs;
    for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)})
      half.route_of_edge[static_cast<std::size_t>(from * kRanks + to)].latency = Nanoseconds(50);
    half.activation_bytes[0] = Bytes(500);
    half.gradient_bytes[0] = Bytes(1500);
    EXPECT_EQ(s.step_with("link:0-1=0.5,link:1-0=0.5"),
              simulate(s.program, half).timeline.makespan_ns);
  }
}

TEST(WhatIfs, RoundHalvesUp) {
  Setting s;
  s.costs = CostTable::uniform(kRanks, {.f = Nanoseconds(5), .b = Nanoseconds(15)});
  // 4.5 and 13.5.
  EXPECT_EQ(s.step_with("F=0.9,B=0.9"), (kMicroBatches + kRanks - 1) * (5 + 14));
}

std::string complaint(const std::string& text) {
  try {
    parse_changes(text, "--suppose");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Changes, AreReadAsTheyAreWritten) {
  for (const char* text : {"F=0.9", "OPT=2", "pairs=0.000001", "messages=0", "collectives=1000",
                           "rank:3=0.9", "rank:3=median", "stage:2=0.5", "micro-batch:5=1.5",
                           "action:2F5=0.9", "action:(0F7;2B3)OVERLAP_F_B=0.9", "link:0-1=0.25",
                           "stages=mean", "micro-batches=mean", "F=0.5,B=0.5,rank:0=median"}) {
    EXPECT_EQ(to_string(parse_changes(text, "a test")), text);
  }
  EXPECT_EQ(to_string(parse_changes(" F = .90 , link: 0 - 1 = 2.0 ", "a test")),
            "F=0.9,link:0-1=2");
}

TEST(Changes, InWords) {
  const auto words = [](const char* text) { return in_words(parse_changes(text, "a test")); };
  EXPECT_EQ(words("rank:3=0.9"), "rank 3: 10 % faster");
  EXPECT_EQ(words("F=1.255"), "F: 25.5 % slower");
  EXPECT_EQ(words("link:0-1=0"), "link 0 to 1: free");
  EXPECT_EQ(words("messages=0,stages=mean"), "messages: free, stages balanced");
  EXPECT_EQ(words("rank:3=median"), "rank 3: as fast as the median");
  EXPECT_EQ(words("action:2F5=1"), "action 2F5: as it is");
  EXPECT_EQ(words("micro-batches=mean"), "micro-batches alike");
}

TEST(Changes, ThatAreNoneAreRefusedByTheirPlace) {
  EXPECT_EQ(complaint("F=0.9,rank:3"),
            "--suppose \"rank:3\": expected TARGET=FACTOR, such as rank:3=0.9");
  EXPECT_NE(complaint("rnk:3=0.9").find("did you mean \"rank\"?"), std::string::npos);
  EXPECT_NE(complaint("rank=0.9").find("rank:R"), std::string::npos);
  EXPECT_NE(complaint("F:2=0.9").find("before the ="), std::string::npos);
  EXPECT_EQ(complaint("rank:x=0.9"), "--suppose \"rank:x=0.9\": expected a number behind rank:");
  EXPECT_EQ(complaint("link:3=0.9"),
            "--suppose \"link:3=0.9\": expected two ranks behind link:, such as link:0-1");
  EXPECT_NE(complaint("action:2SEND_F5=0.9").find("such as 2F5"), std::string::npos);
  for (const char* bad : {"F=", "F=-1", "F=1001", "F=0.1234567", "F=1e3", "F=.", "F=1.", "F=1.-5",
                          "F=median", "F=mean", "F=1000.1"})
    EXPECT_NE(complaint(bad).find("expected a factor from 0 to 1000"), std::string::npos) << bad;
  EXPECT_NE(complaint("rank:1=fast").find("or median,"), std::string::npos);
  EXPECT_EQ(complaint("stages=0.9"), "--suppose \"stages=0.9\": expected mean behind the =");
  EXPECT_NE(complaint(""), "");
  EXPECT_NE(complaint("F=0.9,"), "");
}

TEST(Changes, ThatSayNothingAboutTheProgram) {
  const Setting s;
  const TimedProgram timed(s.program, s.costs);
  const auto fault = [&](const char* text) {
    return timed.fault_of(parse_changes(text, "a test").front());
  };
  EXPECT_EQ(fault("rank:9=0.9"), "there is no rank 9; they are 0 to 3");
  EXPECT_EQ(fault("stage:4=0.9"), "there is no stage 4; they are 0 to 3");
  EXPECT_EQ(fault("micro-batch:8=0.9"), "there is no micro-batch 8; they are 0 to 7");
  EXPECT_EQ(fault("link:0-2=0.9"), "no message goes from rank 0 to rank 2");
  EXPECT_EQ(fault("W=0.9"), "nothing computes W by itself");
  EXPECT_EQ(fault("action:0W3=0.9"), "nothing computes 0W3 by itself");
  EXPECT_EQ(fault("pairs=0.9"), "there are no overlapped pairs with a time of their own");
  EXPECT_EQ(fault("collectives=0.9"), "there are no collectives");
  EXPECT_EQ(fault("rank:3=median"), "");
  EXPECT_EQ(fault("stages=mean"), "");
  EXPECT_EQ(fault("action:3B7=0.9"), "");
}

}  // namespace what_if_test
}  // namespace pipewright::sim
