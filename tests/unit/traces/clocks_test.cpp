// Clocks of ranks set right by messages whose true times are known.
#include "traces/analysis/clocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/draw.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::traces {
namespace clocks_test {

using test::Draw;
using ::testing::HasSubstr;

constexpr std::int64_t kSecond = 1'000'000'000, kMillisecond = 1'000'000;

/// What a clock shows at a true time.
struct Clock {
  std::int64_t ahead_ns = 0;
  double drift = 0;
  std::int64_t at(std::int64_t true_ns) const {
    return true_ns + ahead_ns + std::llround(drift * static_cast<double>(true_ns));
  }
};

/// Messages both ways between neighbours of a chain, for so long. Each takes 0.1 to 0.4 ms; every
/// other one lies for up to 20 ms before it is taken.
std::vector<Message> messages_of(const std::vector<Clock>& clocks, std::int64_t length_ns,
                                 Draw& draw) {
  std::vector<Message> messages;
  for (int i = 0; i < 400; ++i) {
    const auto low = static_cast<std::size_t>(draw.below(static_cast<int>(clocks.size()) - 1));
    const bool up = draw.coin(), awaited = draw.coin();
    const std::size_t from = up ? low : low + 1, to = up ? low + 1 : low;
    const std::int64_t begun = length_ns / 1'000'000 * draw.below(1'000'000);
    const std::int64_t took =
        100'000 + draw.below(300'000) + (awaited ? 0 : draw.below(20'000'000));
    messages.push_back({from, to, clocks[from].at(begun), clocks[to].at(begun + took), awaited});
  }
  return messages;
}

std::vector<int> numbers(std::size_t count) {
  std::vector<int> ranks(count);
  for (std::size_t r = 0; r < count; ++r) ranks[r] = static_cast<int>(r);
  return ranks;
}

/// How far from the first rank's clock the others are, at the start, the middle and the end.
void expect_right(const ClockFit& fit, const std::vector<Clock>& clocks, std::int64_t length_ns) {
  for (const std::int64_t moment : {std::int64_t{0}, length_ns / 2, length_ns}) {
    for (std::size_t r = 1; r < clocks.size(); ++r) {
      const std::int64_t shown = clocks[r].at(moment);
      const std::int64_t error = shown + correction_at(fit, r, shown) - clocks[0].at(moment);
      EXPECT_LE(std::abs(error), kMillisecond) << "rank " << r << " at " << moment;
    }
  }
  for (std::size_t r = 1; r < clocks.size(); ++r) {
    const std::int64_t truth = clocks[0].at(length_ns / 2) - clocks[r].at(length_ns / 2);
    EXPECT_TRUE(fit.shifts[r].bounded);
    // The middle of the messages is that of the step to within their distance.
    const auto slack = static_cast<std::int64_t>(kMostDrift * static_cast<double>(length_ns) / 20);
    EXPECT_LE(fit.shifts[r].least_ns, truth + slack);
    EXPECT_GE(fit.shifts[r].most_ns, truth - slack);
  }
}

TEST(Clocks, OneThatIsWrongComesBackWithinAMillisecond) {
  const std::vector<Clock> faults = {
      {11 * kSecond, 0}, {-3 * kMillisecond, 0}, {0, 50e-6},
      {0, -50e-6},       {11 * kSecond, 50e-6},  {-3600 * kSecond, -200e-6}};
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    for (const std::int64_t length_ns : {kSecond / 5, 5 * kSecond, 60 * kSecond}) {
      for (const Clock& fault : faults) {
        Draw draw(seed);
        std::vector<Clock> clocks(2 + static_cast<std::size_t>(draw.below(4)));
        clocks[static_cast<std::size_t>(draw.below(static_cast<int>(clocks.size())))] = fault;
        const ClockFit fit =
            fit_clocks(messages_of(clocks, length_ns, draw), numbers(clocks.size()), "t.json");
        EXPECT_EQ(fit.acausal_after, 0U);
        SCOPED_TRACE(std::to_string(fault.ahead_ns) + " ns, " + std::to_string(fault.drift) +
                     ", of " + std::to_string(length_ns));
        expect_right(fit, clocks, length_ns);
      }
    }
  }
}

TEST(Clocks, ThatAgreeAreLeftAsTheyAre) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Draw draw(seed);
    const std::vector<Clock> clocks(4);
    const ClockFit fit = fit_clocks(messages_of(clocks, kSecond, draw), numbers(4), "t.json");
    EXPECT_TRUE(fit.agreed);
    EXPECT_EQ(fit.acausal_before, 0U);
    for (const ClockShift& clock : fit.shifts) {
      EXPECT_EQ(clock.shift_ns, 0);
      EXPECT_LE(clock.least_ns, 0);
      EXPECT_GE(clock.most_ns, 0);
    }
  }
}

/// There and back between ranks 0 and 1 take 300 us in all. Of rank 2 what comes back was waited
/// for once, and took 9.9 ms: what its messages leave open.
TEST(Clocks, WhatIsConfirmedInOneDirectionTookNoLongerThanARoundTrip) {
  const std::int64_t us = 1000, ahead = -3 * kMillisecond;
  const std::vector<Message> messages = {{0, 1, 0, 100 * us, true},
                                         {1, 0, 500 * us, 700 * us, true},
                                         {1, 2, 1000 * us, 1150 * us + ahead, true},
                                         {1, 2, 1300 * us, 1470 * us + ahead, true},
                                         {2, 1, 2000 * us + ahead, 11900 * us, true}};
  const ClockFit fit = fit_clocks(messages, numbers(3), "t.json");
  EXPECT_FALSE(fit.agreed);
  EXPECT_NEAR(static_cast<double>(fit.shifts[2].shift_ns), -ahead, 200.0 * us);
  EXPECT_LT(fit.shifts[2].least_ns, -ahead - 100 * us);
  EXPECT_GT(fit.shifts[2].most_ns, -ahead + 9000 * us);
}

TEST(Clocks, RefusesWhatNoClocksExplainOrBound) {
  const std::int64_t ms = kMillisecond;
  const std::vector<Message> impossible = {{0, 1, 0, 10 * ms, true},
                                           {1, 0, 40 * ms, 20 * ms, true}};
  EXPECT_THAT(test::refusal([&] { fit_clocks(impossible, numbers(2), "t.json"); }).message(),
              HasSubstr("some message ends before it began"));
  const std::vector<Message> one_way = {{0, 1, 10 * ms, 0, true}};
  EXPECT_THAT(test::refusal([&] { fit_clocks(one_way, numbers(2), "t.json"); }).message(),
              HasSubstr("cannot be set right"));
  const ClockFit unknown = fit_clocks({{0, 1, 0, 10 * ms, true}}, numbers(2), "t.json");
  EXPECT_TRUE(unknown.agreed);
  EXPECT_FALSE(unknown.shifts[1].bounded);
}

}  // namespace clocks_test
}  // namespace pipewright::traces
