// Fixed-point sums: known answers, every order gives one result, and what does not fit is told.
#include "exec/base/fixed_point.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/numeric.hpp"

namespace pipewright::exec::cpu {
namespace fixed_point_test {

using test::Floats;

/// One array after another.
FixedPointSums sum_of(const std::vector<Floats>& parts) {
  FixedPointSums sums(parts.front().size());
  for (const Floats& part : parts) EXPECT_TRUE(sums.add(part));
  return sums;
}

Floats rounded(const FixedPointSums& sums) {
  Floats result(sums.size());
  sums.round_to(result);
  return result;
}

/// Floats of all sizes that sums take, both signs.
Floats wild_floats(std::size_t n, std::uint64_t key) {
  Floats values = test::random_floats(n, key);
  for (std::size_t i = 0; i < n; ++i)
    values[i] =
        std::ldexp(values[i], static_cast<int>(uniform_below(key_of(key, "size"), i, 95)) - 57);
  return values;
}

TEST(FixedPoint, ASingleFloatComesBackUnchanged) {
  Floats values = wild_floats(1000, 1);
  for (const float one : {0.0F, 1.0F, -1.0F, 0x1.fffffep41F, -0x1.fffffep41F, 0x1p-80F, -0x1p-80F,
                          0x1.fffffep-57F, -0x1.fffffep-20F})
    values.push_back(one);
  EXPECT_EQ(rounded(sum_of({values})), values);
}

TEST(FixedPoint, KeepsWhatAFloatSumLoses) {
  EXPECT_EQ(rounded(sum_of({{0x1p40F}, {0x1p-60F}, {-0x1p40F}})), Floats{0x1p-60F});
  EXPECT_EQ(rounded(sum_of({{1e8F}, {1.0F}, {-1e8F}})), Floats{1.0F});
}

TEST(FixedPoint, RoundsOnceToTheNearestAndTiesToEven) {
  const float next = std::nextafter(1.0F, 2.0F), half = 0x1p-24F;
  EXPECT_EQ(rounded(sum_of({{1.0F}, {half}})), Floats{1.0F});
  EXPECT_EQ(rounded(sum_of({{1.0F}, {half}, {0x1p-80F}})), Floats{next});
  EXPECT_EQ(rounded(sum_of({{1.0F}, {half}, {-0x1p-80F}})), Floats{1.0F});
  EXPECT_EQ(rounded(sum_of({{next}, {half}})), Floats{std::nextafter(next, 2.0F)});
  EXPECT_EQ(rounded(sum_of({{-1.0F}, {-half}})), Floats{-1.0F});
  EXPECT_EQ(rounded(sum_of({{-1.0F}, {-half}, {-0x1p-80F}})), Floats{-next});
}

TEST(FixedPoint, IsTheDoubleSumWhereThatIsExact) {
  // Multiples of 2^-30 below 1: sums of a thousand have at most 40 bits.
  std::vector<Floats> parts;
  std::vector<double> expected(37, 0.0);
  for (std::uint64_t p = 0; p < 1000; ++p) {
    parts.push_back(test::random_floats(37, p));
    for (std::size_t i = 0; i < 37; ++i) expected[i] += static_cast<double>(parts.back()[i]);
  }
  const Floats found = rounded(sum_of(parts));
  for (std::size_t i = 0; i < 37; ++i) EXPECT_EQ(found[i], static_cast<float>(expected[i]));
}

TEST(FixedPoint, EveryOrderAndGroupingGivesTheSameWords) {
  std::vector<Floats> parts;
  for (std::uint64_t p = 0; p < 24; ++p) parts.push_back(wild_floats(53, p));
  const FixedPointSums known = sum_of(parts);
  for (std::uint64_t turn = 0; turn < 50; ++turn) {
    for (std::size_t i = parts.size(); i > 1; --i)
      std::swap(parts[i - 1], parts[uniform_below(key_of(turn, "order"), i, i)]);
    EXPECT_EQ(sum_of(parts), known);
    const auto middle = parts.begin() + 1 + static_cast<long>(turn % 22);
    FixedPointSums left = sum_of({parts.begin(), middle});
    ASSERT_TRUE(left.add(sum_of({middle, parts.end()})));
    EXPECT_EQ(left, known);
  }
}

TEST(FixedPoint, OneAtATimeGivesTheWordsOfManyAtOnce) {
  // A single element never takes the way of sixteen.
  const Floats values = wild_floats(64, 3), more = wild_floats(64, 4);
  const FixedPointSums together = sum_of({values, more});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const FixedPointSums alone = sum_of({{values[i]}, {more[i]}});
    EXPECT_EQ(alone.high()[0], together.high()[i]);
    EXPECT_EQ(alone.low()[0], together.low()[i]);
  }
}

TEST(FixedPoint, TellsOfWhatIsNotFiniteAndOfWhatIsTooLarge) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 0x1p42F, -1e30F}) {
    for (const std::size_t n : {1, 16, 40}) {
      Floats values(n, 1.0F);
      values[n / 2] = bad;
      FixedPointSums sums(n);
      EXPECT_FALSE(sums.add(values)) << bad << " of " << n;
    }
  }
  for (const std::size_t n : {1, 16}) {
    FixedPointSums sums(n);
    const Floats large(n, 0x1.8p41F);
    EXPECT_TRUE(sums.add(large));
    FixedPointSums other = sums;
    EXPECT_FALSE(sums.add(large));
    EXPECT_FALSE(FixedPointSums(other).add(other));
  }
}

TEST(FixedPoint, ClearedSumsBeginAnew) {
  FixedPointSums sums = sum_of({{1.0F, 2.0F}});
  sums.clear();
  EXPECT_EQ(sums, FixedPointSums(2));
}

}  // namespace fixed_point_test
}  // namespace pipewright::exec::cpu
