// When older weights are kept, and what they add to a rank's peak, counted by hand.
#include "core/program/version_changes.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "core/program/lower.hpp"
#include "core/program/version_uses.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright {
namespace version_changes_test {

using Change = std::tuple<std::size_t, int, int>;

std::vector<Change> changes_of(const Order& order, int rank) {
  std::vector<Change> changes;
  const auto& list = order.ranks[static_cast<std::size_t>(rank)];
  for (const VersionChange& c : version_changes(list, order.placement.stages_of(RankId(rank))))
    changes.emplace_back(c.after, c.stage, c.change);
  return changes;
}

Order read(const char* csv) { return read_order_csv(csv, "test"); }

/// Rank 0 is one micro-batch ahead. m1 began with version 0, which the first OPT replaces, and the
/// W of m1, that names nothing, is the last to use it. Rank 1 has nothing under way when it
/// updates.
const char* const kOneAhead =
    "0F0@0,0F1@0,0I0@0,0W0,OPT,0F2@1,0I1@0,0W1,OPT,0I2@1,0W2,OPT\n"
    "1F0@0,1I0@0,1W0,OPT,1F1@1,1I1@1,1W1,OPT,1F2@2,1I2@2,1W2,OPT\n";

TEST(VersionChanges, AnOlderVersionIsKeptFromTheUpdateToItsLastUse) {
  const Order order = read(kOneAhead);
  EXPECT_EQ(changes_of(order, 0),
            (std::vector<Change>{{4, 0, 1}, {7, 0, -1}, {8, 0, 1}, {10, 0, -1}}));
  EXPECT_EQ(changes_of(order, 1), std::vector<Change>());
}

TEST(VersionChanges, EachStageOfARankKeepsItsOwn) {
  const Order order = read("0F0@0,1F0@0,0F1@0,1B0@0,0B0@0,OPT,1F1@1,1B1@1,0B1@0,OPT\n");
  EXPECT_EQ(changes_of(order, 0), (std::vector<Change>{{5, 0, 1}, {8, 0, -1}}));
}

/// A fragment may name any number.
TEST(VersionChanges, TakeNoMemoryForANumberThatIsLarge) {
  const Order order = read("0F0@2000000000,0B0@2000000000,OPT\n");
  EXPECT_EQ(changes_of(order, 0), std::vector<Change>());
}

TEST(VersionUses, OfAPairAndOfAWeightGradientThatNamesNone) {
  const Order order = read("0F0@0,(0F1@1;0B0@0)OVERLAP_F_B,0I1@1,0W1\n");
  const VersionUses uses(order.ranks.front());
  EXPECT_EQ(uses.version_of(0, 0), 0);
  EXPECT_EQ(uses.version_of(0, 1), 1);
  EXPECT_EQ(uses.version_of(7, 3), 0);
  EXPECT_TRUE(uses.is_used_after(0, 0, 0));
  EXPECT_TRUE(uses.is_last_use(0, 0, 1));
  EXPECT_FALSE(uses.is_used_after(0, 0, 1));
  EXPECT_TRUE(uses.is_last_use(0, 1, 3));
  EXPECT_FALSE(uses.is_used_after(0, 2, 0));
}

TEST(VersionChanges, ThereAreNoneWhereNothingIsNamed) {
  const Order order = read("0F0,0F1,0B0,0B1,OPT\n");
  EXPECT_EQ(changes_of(order, 0), std::vector<Change>());
  EXPECT_TRUE(version_changes(lower(order, CommPolicy{}), RankId(0)).empty());
}

TEST(VersionChanges, AProgramHasThoseOfItsOrder) {
  const Order order = read(kOneAhead);
  const Program program = lower(order, CommPolicy{});
  std::vector<std::string> after;
  for (const VersionChange& c : version_changes(program, RankId(0)))
    after.push_back(program.text(program.rank_begin[0] + static_cast<InstructionId>(c.after)));
  EXPECT_EQ(after, (std::vector<std::string>{"OPT", "0W1", "OPT", "0W2"}));
}

/// 1000 are always there, an activation takes 10, of which I gives 4 back. When m2 comes, m1 is
/// there and version 0 for it.
TEST(VersionChanges, CountInThePeak) {
  const Program program = lower(read(kOneAhead), CommPolicy{});
  CostTable costs = CostTable::uniform(2, {});
  costs.memory.assign(2, {Bytes(10), Bytes(-4), Bytes(-6), Bytes(1000)});
  EXPECT_EQ(peaks_of(program, costs)[0].peak_bytes, 1020);
  for (StageMemory& each : costs.memory) each.version = Bytes(300);
  const auto peaks = peaks_of(program, costs);
  EXPECT_EQ(peaks[0].peak_bytes, 1320);
  EXPECT_EQ(peaks[1].peak_bytes, 1010);
}

}  // namespace version_changes_test
}  // namespace pipewright
