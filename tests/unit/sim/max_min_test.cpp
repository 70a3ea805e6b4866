// Max-min shares, and flows that come and go, worked out by hand.
#include "sim/max_min.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace pipewright::sim {
namespace max_min_test {

constexpr double kNoMost = std::numeric_limits<double>::infinity();

/// Rates of flows over links, each flow with the most that it may have.
std::vector<double> rates(std::vector<double> capacities,
                          const std::vector<std::vector<LinkUse>>& flows,
                          std::vector<double> most = {}) {
  MaxMin shares(std::move(capacities));
  most.resize(flows.size(), kNoMost);
  for (MaxMin::Slot f = 0; f < flows.size(); ++f) shares.put_in(f, flows[f], most[f]);
  shares.share_again();
  std::vector<double> found;
  for (MaxMin::Slot f = 0; f < flows.size(); ++f) found.push_back(shares.rate(f));
  return found;
}

using Rates = std::vector<double>;

TEST(MaxMin, OneLinkIsSharedEqually) {
  EXPECT_EQ(rates({12}, {{{0}}, {{0}}, {{0}}}), (Rates{4, 4, 4}));
}

TEST(MaxMin, WhatOneCannotUseTheOthersGet) {
  // Bertsekas and Gallager, Data Networks 6.5: link 0 gives its two flows 1/2 each, so that the
  // third flow of link 1 gets what the first leaves there. Equal shares alone would give it 3/2.
  EXPECT_EQ(rates({1, 3}, {{{0}, {1}}, {{0}}, {{1}}}), (Rates{0.5, 0.5, 2.5}));
}

TEST(MaxMin, AChainOfLinks) {
  // A long flow over three links of 10, 6 and 8, and a short one on each: the long one gets
  // min(5, 3, 4) = 3, the short ones the rest.
  EXPECT_EQ(rates({10, 6, 8}, {{{0}, {1}, {2}}, {{0}}, {{1}}, {{2}}}), (Rates{3, 7, 3, 5}));
}

TEST(MaxMin, ALimitOfItsOwn) {
  EXPECT_EQ(rates({12}, {{{0}}, {{0}}, {{0}}}, {2, kNoMost, kNoMost}), (Rates{2, 5, 5}));
  EXPECT_EQ(rates({12}, {{{0}}, {{0}}, {{0}}}, {2, 2, 3}), (Rates{2, 2, 3}));
}

TEST(MaxMin, StreamsOfOneFlowCountEach) {
  // Two streams of flow 0 and one of flow 1 on 12: 4 each.
  EXPECT_EQ(rates({12, 100}, {{{0, 2}, {1, 1}}, {{0}}}), (Rates{4, 4}));
}

TEST(MaxMin, OnlyWhatHangsTogetherIsSharedAgain) {
  MaxMin shares({8, 8});
  const std::vector<LinkUse> first = {{0}}, second = {{1}};
  shares.put_in(0, first, kNoMost);
  shares.put_in(1, second, kNoMost);
  EXPECT_EQ(shares.share_again().size(), 2U);
  shares.put_in(2, first, kNoMost);
  EXPECT_EQ(shares.share_again().size(), 2U) << "flows 0 and 2, not 1";
  EXPECT_EQ(shares.rate(0), 4);
  EXPECT_EQ(shares.rate(1), 8);
  shares.take_out(0);
  EXPECT_EQ(shares.share_again(), (std::vector<MaxMin::Slot>{2}));
  EXPECT_EQ(shares.rate(2), 8);
}

/// What max-min means (Bertsekas and Gallager): no link carries more than it can, and each flow is
/// at its most, or has a link that is full on which no stream is faster.
void expect_max_min(const std::vector<double>& capacities,
                    const std::vector<std::vector<LinkUse>>& flows, const std::vector<double>& most,
                    const MaxMin& shares) {
  constexpr double kSlack = 1e-9;
  std::vector<double> load(capacities.size(), 0), fastest(capacities.size(), 0);
  for (MaxMin::Slot f = 0; f < flows.size(); ++f) {
    for (const LinkUse& use : flows[f]) {
      load[use.link] += use.streams * shares.rate(f);
      fastest[use.link] = std::max(fastest[use.link], shares.rate(f));
    }
  }
  for (std::size_t l = 0; l < load.size(); ++l)
    EXPECT_LE(load[l], capacities[l] * (1 + kSlack)) << "link " << l;
  for (MaxMin::Slot f = 0; f < flows.size(); ++f) {
    if (flows[f].empty()) continue;  // not there
    const bool is_held = std::ranges::any_of(flows[f], [&](const LinkUse& use) {
      return load[use.link] >= capacities[use.link] * (1 - kSlack) &&
             shares.rate(f) >= fastest[use.link] * (1 - kSlack);
    });
    EXPECT_TRUE(is_held || shares.rate(f) >= most[f] * (1 - kSlack)) << "flow " << f;
    EXPECT_LE(shares.rate(f), most[f] * (1 + kSlack));
    EXPECT_GT(shares.rate(f), 0);
  }
}

TEST(MaxMin, HoldsWhateverComesAndGoes) {
  std::mt19937 random(72);
  const auto below = [&](std::size_t n) { return random() % n; };
  for (int round = 0; round < 200; ++round) {
    std::vector<double> capacities(1 + below(8));
    for (double& capacity : capacities) capacity = static_cast<double>(1 + below(50));
    MaxMin shares(capacities);
    std::vector<std::vector<LinkUse>> flows(12);
    std::vector<double> most(flows.size(), 0);
    for (int change = 0; change < 40; ++change) {
      const auto f = static_cast<MaxMin::Slot>(below(flows.size()));
      if (flows[f].empty()) {
        for (std::uint32_t link = 0; link < capacities.size(); ++link) {
          if (below(3) == 0) flows[f].push_back({link, static_cast<std::uint32_t>(1 + below(3))});
        }
        if (flows[f].empty()) continue;
        most[f] = below(2) == 0 ? kNoMost : static_cast<double>(1 + below(20));
        shares.put_in(f, flows[f], most[f]);
      } else {
        shares.take_out(f);
        flows[f].clear();
      }
      shares.share_again();
      expect_max_min(capacities, flows, most, shares);
    }
  }
}

}  // namespace max_min_test
}  // namespace pipewright::sim
