// Token tables and logits of which ranks have a part each: taken part by part they give the bits of
// the whole, also where a part's columns do not begin at a multiple of the sum's lanes.
#include <gtest/gtest.h>

#include <vector>

#include "exec/base/random.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace vocabulary_ops_test {

constexpr int kRows = 6;

std::vector<float> random_floats(std::size_t n, const char* name) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = 4 * symmetric_uniform(key_of(7, name), i);
  return values;
}

std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// Columns [first, first + width) of rows of `all` numbers.
std::vector<float> columns(const std::vector<float>& from, int all, int first, int width) {
  std::vector<float> part;
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < width; ++j) part.push_back(from[index(r * all + first + j)]);
  }
  return part;
}

class DividedLogits : public testing::TestWithParam<int> {};

TEST_P(DividedLogits, HaveTheLossAndTheGradientOfWholeRows) {
  const int members = GetParam();
  for (const int width : {1, 5, 16, 37}) {
    SCOPED_TRACE(width);
    const int all = members * width;
    const std::vector<float> logits = random_floats(index(kRows * all), "logits");
    std::vector<std::int32_t> labels;
    for (int r = 0; r < kRows; ++r) labels.push_back((r * 13 + 2) % all);
    std::vector<float> whole(logits.size());
    const double loss =
        softmax_cross_entropy_forward({kRows, all}, logits.data(), labels.data(), whole.data());
    std::vector<float> dwhole(logits.size());
    softmax_cross_entropy_backward_input({kRows, all}, whole.data(), labels.data(), 0.25F,
                                         dwhole.data());

    std::vector<float> facts(index(kRows * (members + 1)), 0), sums(index(kRows * kLossLanes), 0);
    std::vector<std::vector<float>> parts;
    const auto part_of = [&](int m) { return LogitsPart{{kRows, width}, m * width, m, members}; };
    for (int m = 0; m < members; ++m) {
      parts.push_back(columns(logits, all, m * width, width));
      tell_logits(part_of(m), parts.back().data(), labels.data(), facts.data());
    }
    for (int m = 0; m < members; ++m) {
      std::vector<float>& part = parts[index(m)];  // in place
      add_exponentials(part_of(m), part.data(), facts.data(), part.data(), sums.data());
    }
    for (int m = 0; m < members; ++m) {
      std::vector<float>& part = parts[index(m)];
      EXPECT_EQ(finish_cross_entropy(part_of(m), facts.data(), sums.data(), part.data()), loss);
      EXPECT_EQ(part, columns(whole, all, m * width, width));
      divided_cross_entropy_backward_input(part_of(m), part.data(), labels.data(), 0.25F,
                                           part.data());
      EXPECT_EQ(part, columns(dwhole, all, m * width, width));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Among, DividedLogits, testing::Values(1, 2, 3, 8));

TEST(DividedTable, LooksUpAndLearnsAsAWholeOne) {
  constexpr int kWidth = 3, kCount = 4, kMembers = 3;
  const EmbeddingShape shape{kRows, 2, kWidth};
  const std::vector<std::int32_t> ids = {11, 0, 3, 4, 0, 8};
  const std::vector<float> table = random_floats(kMembers * kCount * kWidth, "table");
  const std::vector<float> positions = random_floats(2 * kWidth, "positions");
  const std::vector<float> dy = random_floats(kRows * kWidth, "gradient");
  std::vector<float> expected(kRows * kWidth);
  embedding_forward(shape, ids.data(), table.data(), positions.data(), expected.data());
  std::vector<float> dtable(table.size(), 0.5F), dpositions(positions.size(), 0.5F);
  embedding_backward_weight(shape, ids.data(), dy.data(), dtable.data(), dpositions.data());

  std::vector<float> y(kRows * kWidth, 9);
  std::vector<float> own_dtable(table.size(), 0.5F);
  for (int m = 0; m < kMembers; ++m) {
    const TokenRange own{m * kCount, kCount, kMembers * kCount};
    const std::size_t begin = index(own.first * kWidth);
    look_up(shape, own, m == 0, ids.data(), table.data() + begin, y.data());
    std::vector<float> own_dpositions(positions.size(), 0.5F);
    look_up_backward_weight(shape, own, ids.data(), dy.data(), own_dtable.data() + begin,
                            own_dpositions.data());
    EXPECT_EQ(own_dpositions, dpositions);
  }
  add_positions(shape, positions.data(), y.data());
  EXPECT_EQ(y, expected);
  EXPECT_EQ(own_dtable, dtable);

  look_up(shape, {0, kCount, kMembers * kCount}, true, ids.data(), table.data(), y.data());
  EXPECT_EQ(y[0], 0);  // token 11 is another one's
}

}  // namespace vocabulary_ops_test
}  // namespace pipewright::exec
