#include "exec/runtime/part_table.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "exec/training/gradient_exchange.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::exec {
namespace part_table_test {

/// Two ranks that both compute both stages.
Program replicated() {
  return lower(test::bidirectional_order(2, 4), CommPolicy{}, {.optimizer = true});
}

InstructionId reduction_of(const Program& program, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
    if (program.code[id].kind == ActionKind::ReduceGrad) return id;
  }
  return kNoInstruction;
}

PartPtr part_with(float value, int micro_batches) {
  GradientPart part;
  part.gradients.push_back({value, -value});
  part.gradients.push_back({2 * value});
  part.micro_batches = micro_batches;
  return std::make_shared<GradientMessage>(std::move(part));
}

TEST(PartTable, GivesAllPartsByRankWhateverTheirOrderAndForgetsThemWithTheLastReader) {
  const Program program = replicated();
  const InstructionId first = reduction_of(program, 0), second = reduction_of(program, 1);
  PartTable table(program, {RankId(0), RankId(1)});
  for (int step = 0; step < 2; ++step) {
    const PartPtr low = part_with(1, 2), high = part_with(3, 2);
    table.put(second, high);
    EXPECT_FALSE(table.is_complete(first));
    table.put(first, low);
    EXPECT_TRUE(table.is_complete(second));
    EXPECT_EQ(table.read(second), (std::vector<PartPtr>{low, high}));
    EXPECT_EQ(table.read(first), (std::vector<PartPtr>{low, high}));
    EXPECT_FALSE(table.is_complete(first));
  }
}

TEST(PartTable, ReadsOnceWhereOneMemberIsAtHome) {
  const Program program = replicated();
  const InstructionId first = reduction_of(program, 0), second = reduction_of(program, 1);
  PartTable table(program, {RankId(1)});
  table.put(first, part_with(1, 2));
  table.put(second, part_with(3, 2));
  EXPECT_EQ(table.read(second).size(), 2U);
  EXPECT_FALSE(table.is_complete(second));
  EXPECT_THROW(table.read(second), Bug);
}

TEST(PartTable, RefusesAPartTwiceAndAStranger) {
  const Program program = replicated();
  PartTable table(program, {RankId(0)});
  table.put(reduction_of(program, 0), part_with(1, 2));
  EXPECT_THROW(table.put(reduction_of(program, 0), part_with(1, 2)), Bug);
  EXPECT_THROW(table.put(0, part_with(1, 2)), Bug);
}

TEST(GradientMessage, ComesBackFromItsPackedFormBitForBit) {
  const PartPtr message = part_with(0.1F, 3);
  const GradientPart back = unpacked(message->pack());
  const auto& sent = dynamic_cast<const GradientMessage&>(*message).part;
  EXPECT_EQ(back.gradients, sent.gradients);
  EXPECT_EQ(back.micro_batches, 3);
  const GradientPart nothing = unpacked(GradientMessage({}).pack());
  EXPECT_TRUE(nothing.gradients.empty());
}

TEST(GradientMessage, IsRefusedWhereItIsNotWhole) {
  HostPayload packed = part_with(1, 3)->pack();
  packed.values.pop_back();
  EXPECT_THROW(unpacked(packed), RunError);
  EXPECT_THROW(unpacked(HostPayload({1, 2})), RunError);
}

}  // namespace part_table_test
}  // namespace pipewright::exec
