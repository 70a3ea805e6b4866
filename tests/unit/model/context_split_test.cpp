// Which rows a rank of cp has, and which models it can have parts of.
#include "core/model/context_split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/order/devices.hpp"
#include "exec/layers/context_group.hpp"

namespace pipewright {
namespace context_split_test {

Model model_with(int sequence, Json changes = Json::object()) {
  Json transformer = {{"hidden", 8}, {"layers", 2},       {"heads", 2},
                      {"ffn", 8},    {"vocabulary", 256}, {"sequence", sequence}};
  transformer.update(changes);
  return read_model(
      JsonCursor(Json{{"schema", "pipewright.model/1"}, {"transformer", transformer}}, "model"));
}

std::vector<int> positions(int parts, int index, int sequence) {
  const ContextPlace place{index, parts};
  const int rows = own_sequence(sequence, parts);
  std::vector<int> all;
  for (int i = 0; i < rows; ++i) all.push_back(place.position(rows, i));
  return all;
}

TEST(ContextSplit, ARankHasAChunkFromEachEnd) {
  EXPECT_EQ(positions(2, 0, 8), (std::vector<int>{0, 1, 6, 7}));
  EXPECT_EQ(positions(2, 1, 8), (std::vector<int>{2, 3, 4, 5}));
  EXPECT_EQ(positions(4, 1, 8), (std::vector<int>{1, 6}));
  EXPECT_EQ(positions(1, 0, 3), (std::vector<int>{0, 1, 2}));
}

TEST(ContextSplit, RanksHaveAsManyPairsOfAQueryAndAKey) {
  for (const int parts : {2, 3, 8}) {
    std::vector<int> pairs;
    for (int index = 0; index < parts; ++index) {
      int sum = 0;
      for (const int position : positions(parts, index, 4 * parts)) sum += position + 1;
      pairs.push_back(sum);
    }
    EXPECT_EQ(std::count(pairs.begin(), pairs.end(), pairs.front()), parts) << parts;
  }
}

TEST(ContextSplit, RowsOfAllSamplesAreEachOfOneRank) {
  constexpr int kParts = 3, kSamples = 2, kRows = 4;  // of a sample, on each rank
  std::vector<std::int64_t> all;
  for (int index = 0; index < kParts; ++index) {
    for (int own = 0; own < kSamples * kRows; ++own)
      all.push_back(row_of_all({index, kParts}, kRows, own));
  }
  std::sort(all.begin(), all.end());
  for (std::size_t row = 0; row < all.size(); ++row)
    EXPECT_EQ(all[row], static_cast<std::int64_t>(row));
  EXPECT_EQ(row_of_all({2, kParts}, kRows, 4), 12 + 4);
}

TEST(ContextSplit, TurnsGoThroughTheRowsInTheirOrder) {
  constexpr int kParts = 4, kSamples = 2, kRows = 6;
  std::int64_t next = 0;
  for (const exec::ChainTurn& turn : exec::turns_of_rows(kSamples, kRows, kParts)) {
    for (std::int64_t own = turn.own.begin; own < turn.own.begin + turn.own.count; ++own)
      EXPECT_EQ(row_of_all({turn.member, kParts}, kRows, own), next++);
  }
  EXPECT_EQ(next, std::int64_t{kParts} * kSamples * kRows);
}

TEST(ContextSplit, RanksAlongCpComputeOneDataUnderNumbersOfTheirOwn) {
  const std::vector<MeshAxis> devices{{"tp", 2}, {"cp", 2}, {"ep", 2}};
  EXPECT_EQ(micro_batches_of_data(devices, 24), 6);
  std::vector<int> numbers;
  for (int m = 0; m < 24; m += 3) numbers.push_back(number_of_data(devices, m, 24));
  EXPECT_EQ(numbers, (std::vector<int>{0, 0, 0, 0, 3, 3, 3, 3}));
  // They hold the same parameters: the first of them counts.
  for (int rank = 0; rank < 8; ++rank)
    EXPECT_EQ(first_micro_batch(devices, RankId(rank), 24), MicroBatchId(rank % 2 * 3));
}

TEST(ContextSplit, WhatCannotBeDividedIsSaid) {
  const Model eight = model_with(8);
  EXPECT_EQ(context_fault(eight, 1), "");
  EXPECT_EQ(context_fault(eight, 4), "");
  EXPECT_EQ(context_fault(model_with(10), 4),
            "cp 4 gives each rank 2 of 8 chunks of a sample, and its 10 tokens do not divide into "
            "them; the nearest lengths that do are 8 and 16");
  EXPECT_EQ(context_fault(model_with(3), 2),
            "cp 2 gives each rank 2 of 4 chunks of a sample, and its 3 tokens do not divide into "
            "them; the nearest lengths that do are 4");
  EXPECT_EQ(context_fault(model_preset("resnet-tiny"), 2),
            "context parallelism does not divide the rows of layer \"0.stem/0.conv\" (conv2d) yet; "
            "take cp 1");
  EXPECT_EQ(context_fault(eight, StageDivision{2, 1, true, 2}), "");
  EXPECT_EQ(context_fault(eight, StageDivision{4, 1, true, 2}), "");
  EXPECT_EQ(context_fault(model_with(36), StageDivision{8, 1, true, 2}),
            "cp 2 gives each rank 18 tokens of a sample, which sequence parallelism with tp 8 does "
            "not divide; the nearest lengths of a sample that both divide are 32 and 48");
  EXPECT_EQ(context_fault(model_with(36), StageDivision{8, 1, false, 2}), "");
}

TEST(ContextSplit, MixturesAndLatentAttentionAreDivided) {
  const Model mixtral = model_with(8, {{"style", "llama"},
                                       {"experts", 4},
                                       {"top_k", 2},
                                       {"shared_ffn", 8},
                                       {"capacity_factor", 1.0}});
  EXPECT_EQ(context_fault(mixtral, 2), "");
  EXPECT_EQ(context_fault(mixtral, StageDivision{1, 2, false, 2}), "") << "ep beside it, too";
  const Model latent = model_with(
      8,
      {{"style", "llama"},
       {"latent_attention", {{"key_value_rank", 6}, {"plain", 4}, {"rotary", 2}, {"value", 4}}}});
  EXPECT_EQ(context_fault(latent, 4), "");
  EXPECT_EQ(context_fault(mixtral, StageDivision{.context = 2, .ring = true}), "");
  EXPECT_NE(context_fault(latent, StageDivision{.context = 4, .ring = true}).find("all_gather"),
            std::string::npos);
}

}  // namespace context_split_test
}  // namespace pipewright
