#include "core/program/start_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright {
namespace start_rules_test {

using testing::ElementsAre;

Program program_of(const std::string& schedule, int p, int m, const CommPolicy& policy) {
  return lower(planner::make_order(schedule, {p, m, 1, {}}), policy);
}

std::vector<std::string> inputs_of(const Program& program, const std::string& text) {
  std::vector<std::string> inputs;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.text(id) != text) continue;
    const auto rank = static_cast<std::size_t>(program.rank_of(id).value);
    for_each_input(program, id, program.rank_begin[rank], [&](InstructionId input) {
      inputs.push_back(program.text(input));
      return true;
    });
  }
  return inputs;
}

TEST(StartRules, AComputationWaitsForItsDataAndUnderGroupedIssueForTheRunBeforeIt) {
  EXPECT_THAT(inputs_of(program_of("1f1b", 2, 4, {}), "1F1"), ElementsAre("1RECV_F1"));
  const Program grouped = program_of("1f1b", 2, 4, {.issue = Issue::Grouped});
  EXPECT_THAT(inputs_of(grouped, "1F1"), ElementsAre("1RECV_F1", "1SEND_B0"));
}

TEST(StartRules, AVisitorThatSaysNoEndsTheVisit) {
  const Program grouped = program_of("1f1b", 2, 4, {.issue = Issue::Grouped});
  int visits = 0;
  for (InstructionId id = grouped.rank_begin[1]; id < grouped.rank_begin[2]; ++id) {
    if (grouped.text(id) != "1F1") continue;
    EXPECT_FALSE(for_each_input(grouped, id, grouped.rank_begin[1], [&](InstructionId) {
      ++visits;
      return false;
    }));
  }
  EXPECT_EQ(visits, 1);
}

TEST(StartRules, WithoutALimitThereAreNoPlacesInFlight) {
  EXPECT_TRUE(places_in_flight(program_of("1f1b", 2, 4, {}), RankId(0)).empty());
  const CommPolicy grouped{.issue = Issue::Grouped, .in_flight = 2};
  EXPECT_TRUE(places_in_flight(program_of("1f1b", 2, 4, grouped), RankId(0)).empty());
}

/// Every transfer but the first two takes the place of the second before it. Members of
/// collectives, which stand among the transfers of these schedules, take none.
TEST(StartRules, PlacesInFlightAreThoseOfTransfersAlone) {
  for (const char* schedule : {"1f1b", "chimera", "dualpipe"}) {
    const Program program = program_of(schedule, 4, 8, {.in_flight = 2});
    for (int r = 0; r < program.ranks(); ++r) {
      std::vector<InstructionId> transfers;
      for (const InstructionId id : issue_order(program, RankId(r))) {
        if (is_transfer(program.code[id].kind)) transfers.push_back(id);
      }
      const std::vector<InstructionId> places = places_in_flight(program, RankId(r));
      const InstructionId begin = program.rank_begin[static_cast<std::size_t>(r)];
      std::size_t taken = 0;
      for (const InstructionId place : places) taken += place != kNoInstruction;
      EXPECT_EQ(taken, transfers.size() - 2) << schedule;
      for (std::size_t k = 2; k < transfers.size(); ++k)
        EXPECT_EQ(places[transfers[k] - begin], transfers[k - 2]) << schedule;
    }
  }
}

}  // namespace start_rules_test
}  // namespace pipewright
