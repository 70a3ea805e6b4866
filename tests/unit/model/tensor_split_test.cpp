#include "core/model/tensor_split.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "core/order/devices.hpp"

namespace pipewright {
namespace tensor_split_test {

TEST(TensorSplit, PartsOfColumnsHoldEachNumberOnce) {
  // Queries, keys and values of 4 and 2 and 2 columns: 5 rows of 8.
  std::set<std::int64_t> seen;
  for (int index = 0; index < 2; ++index) {
    const Slice part = columns_of(5, {{0, 4}, {4, 2}, {6, 2}}, index, 2);
    EXPECT_EQ(part.width(), 4);
    EXPECT_EQ(part.size(), 20);
    for (std::int64_t i = 0; i < part.size(); ++i)
      EXPECT_TRUE(seen.insert(part.place_of(i)).second);
  }
  EXPECT_EQ(seen.size(), 40U);
  EXPECT_EQ(*seen.rbegin(), 39);
}

TEST(TensorSplit, APartOfColumnsTakesItsShareOfEachRange) {
  const Slice part = columns_of(2, {{0, 4}, {4, 2}}, 1, 2);
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < part.size(); ++i) places.push_back(part.place_of(i));
  EXPECT_EQ(places, (std::vector<std::int64_t>{2, 3, 5, 8, 9, 11}));
}

TEST(TensorSplit, APartOfRowsLiesInOnePiece) {
  const Slice part = rows_of(6, 3, 1, 3);
  EXPECT_EQ(part.size(), 6);
  for (std::int64_t i = 0; i < part.size(); ++i) EXPECT_EQ(part.place_of(i), 6 + i);
}

TEST(TensorSplit, StretchesAreThePlacesOfTheirNumbers) {
  const std::vector<Slice> parts = {columns_of(5, {{0, 4}, {4, 2}, {6, 2}}, 1, 2),
                                    columns_of(1, {{0, 8}}, 1, 2), rows_of(6, 3, 1, 3), Slice{}};
  for (const Slice& part : parts) {
    const std::int64_t size = part.is_whole() ? 9 : part.size();
    for (std::int64_t begin = 0; begin < size; ++begin) {
      for (std::int64_t end = begin + 1; end <= size; ++end) {
        std::int64_t i = begin, last = -1;
        for (const Range& place : part.places_of({begin, end - begin})) {
          EXPECT_GT(place.begin, last) << "not one stretch with the one before it";
          last = place.begin + place.count;
          for (std::int64_t k = 0; k < place.count; ++k)
            EXPECT_EQ(place.begin + k, part.place_of(i++));
        }
        EXPECT_EQ(i, end);
      }
    }
  }
}

TEST(TensorSplit, AnotherPartIsThatOfAnotherMember) {
  const std::vector<Range> ranges = {{0, 12}, {12, 6}};
  for (int index = 0; index < 3; ++index) {
    for (int other = 0; other < 3; ++other) {
      EXPECT_EQ(other_part(columns_of(4, ranges, index, 3), index, other),
                columns_of(4, ranges, other, 3));
      EXPECT_EQ(other_part(rows_of(6, 5, index, 3), index, other), rows_of(6, 5, other, 3));
    }
  }
}

TEST(TensorSplit, ASliceThatNamesNothingIsTheWhole) {
  EXPECT_TRUE(Slice{}.is_whole());
  EXPECT_EQ(Slice{}.place_of(7), 7);
}

Layer linear(int in, int out) { return {.kind = LayerKind::Linear, .in = in, .out = out}; }
Layer of(LayerKind kind, int width) { return {.kind = kind, .in = width, .out = width}; }

TEST(TensorSplit, OfALinearLayerAndTheNextTheFirstGoesByColumnsTheSecondByRows) {
  using enum Split;
  EXPECT_EQ(splits_of({of(LayerKind::LayerNorm, 8), linear(8, 32), of(LayerKind::Gelu, 32),
                       linear(32, 8)}),
            (std::vector<Split>{Whole, Columns, Whole, Rows}));
  EXPECT_EQ(splits_of({linear(8, 32), linear(32, 8), linear(8, 8)}),
            (std::vector<Split>{Columns, Rows, Whole}));
  // A norm needs whole rows.
  EXPECT_EQ(splits_of({linear(8, 32), of(LayerKind::LayerNorm, 32), linear(32, 8)}),
            (std::vector<Split>{Whole, Whole, Whole}));
}

TEST(TensorSplit, HalvesThatAreJoinedAreDividedEach) {
  const std::vector<Layer> chain{linear(8, 32), of(LayerKind::Swiglu, 32), linear(16, 8)};
  EXPECT_EQ(column_ranges(chain, 0), (std::vector<Range>{{0, 16}, {16, 16}}));
  // Quarters would be divided: whole.
  EXPECT_EQ(splits_of({linear(8, 32), of(LayerKind::Swiglu, 32), of(LayerKind::Swiglu, 16),
                       linear(8, 8)})[0],
            Split::Whole);
}

TEST(TensorSplit, TablesAndHeadsAreDividedWhereTheVocabularyDivides) {
  Model model = model_preset("gpt-tiny");
  const int vocabulary = model.layers.front().vocabulary;
  const auto split = [&](int ranks) {
    const VocabularySplit found = vocabulary_split(model, ranks);
    return std::pair(found.embedding, found.head);
  };
  const std::pair both(true, true), none(false, false);
  EXPECT_EQ(split(1), none);
  EXPECT_EQ(split(2), both);
  EXPECT_EQ(split(vocabulary - 1), none);
  Layer& head = model.layers.back().inner.back();
  head.tied = true;
  EXPECT_EQ(split(2), both);
  model.loss = LossKind::Mse;  // a tied head stays whole, and so does its table
  EXPECT_EQ(split(2), none);
  head.tied = false;
  EXPECT_EQ(split(2), std::pair(true, false));
}

TEST(TensorSplit, WhatCannotBeDividedIsNamedWithTheNearestNumbers) {
  const Model llama = model_preset("llama-tiny");
  EXPECT_EQ(tensor_fault(llama, 1), "");
  EXPECT_EQ(tensor_fault(llama, 2), "");
  const std::string fault = tensor_fault(llama, 3);
  EXPECT_NE(fault.find("tp 3 does not divide the "), std::string::npos) << fault;
  EXPECT_NE(fault.find("the nearest that do are "), std::string::npos) << fault;
  EXPECT_EQ(tensor_fault(model_preset("deepseek-tiny"), 3),
            "tp 3 does not divide the 4 heads of layer \"1.block 0/0.attend/1.attention\"; the "
            "nearest that do are 2 and 4");
  EXPECT_NE(tensor_fault(model_preset("resnet-tiny"), 2).find("this model has neither"),
            std::string::npos);
}

TEST(ExpertSplit, WhatCannotBeDividedIsNamedWithTheNearestNumbers) {
  const Model mixtral = model_preset("mixtral-tiny");
  EXPECT_EQ(expert_fault(mixtral, 1), "");
  EXPECT_EQ(expert_fault(mixtral, 8), "");
  EXPECT_EQ(expert_fault(mixtral, 3),
            "ep 3 does not divide the 8 experts of layer \"1.block 0/1.feed forward/1.experts\"; "
            "the nearest that do are 2 and 4");
  EXPECT_EQ(expert_fault(model_preset("llama-tiny"), 2),
            "expert parallelism divides mixtures of experts, and this model has none; take ep 1");
}

/// Blocks of four devices, a pipeline of one rank with three micro-batches.
TEST(Devices, AlongTpComputeTheSameDataAndAlongEpDataOfTheirOwn) {
  const std::vector<MeshAxis> devices{{"tp", 2}, {"ep", 2}};
  EXPECT_EQ(micro_batches_of_data(devices, 12), 6);
  std::vector<int> numbers;
  for (int m = 0; m < 12; ++m) numbers.push_back(number_of_data(devices, m, 12));
  EXPECT_EQ(numbers, (std::vector<int>{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  const std::vector<MeshAxis> turned{{"ep", 2}, {"tp", 2}};
  numbers.clear();
  for (int m = 0; m < 12; m += 3) numbers.push_back(number_of_data(turned, m, 12));
  EXPECT_EQ(numbers, (std::vector<int>{0, 3, 0, 3}));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(first_micro_batch(devices, RankId(rank), 12), MicroBatchId(rank % 2 * 3));
    EXPECT_EQ(first_micro_batch_of_experts(devices, RankId(rank), 12), MicroBatchId(rank * 3));
  }
}

}  // namespace tensor_split_test
}  // namespace pipewright
