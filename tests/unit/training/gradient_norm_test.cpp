// The norm of gradients: known answers, no trace of order or grouping, and its message.
#include "exec/training/gradient_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "core/base/error.hpp"
#include "tests/unit/numeric.hpp"

namespace pipewright::exec::cpu {
namespace gradient_norm_test {

using test::Floats;

SquareSum squares_of(const Floats& x) {
  SquareSum sum;
  EXPECT_TRUE(sum.add(x));
  return sum;
}

TEST(GradientNorm, IsTheEuclideanNormOfSmallAndLargeNumbers) {
  EXPECT_EQ(squares_of({3, 4}).norm(), 5);
  EXPECT_NEAR(squares_of({-1e-6F}).norm(), 1e-6, 1e-13);
  EXPECT_EQ(squares_of({0x1p39F, 0x1p39F, 0x1p39F, 0x1p39F}).norm(), 0x1p40);
  EXPECT_EQ(squares_of({}).norm(), 0);
  const Floats many = test::random_floats(100000, 1);
  double expected = 0;
  for (const float one : many) expected += static_cast<double>(one) * static_cast<double>(one);
  EXPECT_NEAR(squares_of(many).norm(), std::sqrt(expected), 1e-9 * std::sqrt(expected));
}

TEST(GradientNorm, ShowsNoTraceOfOrderAndGrouping) {
  Floats values = test::random_floats(999, 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(values[i], static_cast<int>(i % 60) - 30);
  const SquareSum known = squares_of(values);
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[uniform_below(key_of(turn, "order"), i, i)]);
    const auto cut = values.begin() + static_cast<long>(47 * turn);
    SquareSum sum = squares_of({values.begin(), cut});
    ASSERT_TRUE(sum.add(squares_of({cut, values.end()})));
    EXPECT_EQ(sum, known);
  }
}

TEST(GradientNorm, TellsOfNumbersThatAreNotFiniteOrTooLarge) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 0x1p41F}) {
    SquareSum sum;
    EXPECT_FALSE(sum.add(Floats{1, bad})) << bad;
  }
}

TEST(GradientNorm, ClipsOnlyWhatIsLonger) {
  EXPECT_EQ(clip_factor(4, 1), 0.25F);
  EXPECT_EQ(clip_factor(1, 1), 1.0F);
  EXPECT_EQ(clip_factor(0, 1), 1.0F);
}

TEST(GradientNorm, TravelsToOtherProcessesAndAddsUp) {
  const SquareSum here = squares_of({3, 0x1p30F}), there = squares_of({4});
  const std::vector<PartPtr> messages{std::make_shared<NormMessage>(here),
                                      std::make_shared<PackedPart>(NormMessage(there).pack()),
                                      std::make_shared<PackedPart>(NormMessage(here).pack())};
  SquareSum expected = here;
  ASSERT_TRUE(expected.add(there));
  ASSERT_TRUE(expected.add(here));
  EXPECT_EQ(total_of(messages), expected);
  const std::vector<PartPtr> strange{std::make_shared<PackedPart>(HostPayload({1.0F}))};
  EXPECT_THROW(total_of(strange), RunError);
}

}  // namespace gradient_norm_test
}  // namespace pipewright::exec::cpu
