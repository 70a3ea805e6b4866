// Which version of the weights is in use, over a store that only notes what it is asked for.
#include "exec/training/weight_versions.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace weight_versions_test {

class Notes final : public KeptVersions {
 public:
  void keep(int version) override { note("keep", version, versions_.insert(version).second); }
  void drop(int version) override { note("drop", version, versions_.erase(version) == 1); }
  void exchange(int version) override { note("exchange", version, versions_.contains(version)); }
  int kept() const override { return static_cast<int>(versions_.size()); }

  std::vector<std::string> notes;

 private:
  void note(const char* what, int version, bool is_right) {
    EXPECT_TRUE(is_right) << what << " " << version;
    notes.push_back(what + (" " + std::to_string(version)));
  }

  std::set<int> versions_;
};

using Said = std::vector<std::string>;

TEST(WeightVersions, OlderWeightsAreExchangedInAndOutOnce) {
  Notes store;
  WeightVersions versions(&store);
  versions.begin();
  versions.begin_next(true);
  versions.use(0);
  versions.use(0);
  EXPECT_EQ(store.notes, (Said{"keep 0", "exchange 0"}));
  versions.begin_next(true);  // an update is of the newest
  EXPECT_EQ(store.notes, (Said{"keep 0", "exchange 0", "exchange 0", "keep 1"}));
  EXPECT_EQ(versions.newest(), 2);
  EXPECT_EQ(versions.live(), 3);
  versions.use(1);
  versions.use(0);  // by way of the newest: two older ones are never in each other's place
  store.notes.clear();
  versions.drop(0);
  EXPECT_EQ(store.notes, (Said{"exchange 0", "drop 0"}));
  versions.drop(1);
  versions.begin();
  EXPECT_EQ(versions.newest(), 0);
  EXPECT_EQ(versions.peak(), 3);
}

TEST(WeightVersions, AStepDoesNotBeginWithOldWeights) {
  Notes store;
  WeightVersions versions(&store);
  versions.begin_next(true);
  EXPECT_THROW(versions.begin(), Bug);
}

TEST(WeightVersions, ADeviceThatKeepsNoneHasTheNewest) {
  WeightVersions versions(nullptr);
  versions.begin();
  versions.begin_next(false);
  versions.use(1);
  versions.drop(0);
  EXPECT_EQ(versions.live(), 1);
  EXPECT_THROW(versions.use(0), Bug);
  EXPECT_THROW(versions.begin_next(true), Bug);
}

}  // namespace weight_versions_test
}  // namespace pipewright::exec
