#include "core/plan/profile_samples.hpp"

#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace profile_samples_test {

/// Three layers whose stages each cost 10 besides; medians are not means.
Json document() {
  return parse_json(R"({
    "model_name": "mine", "cluster": {"schema": "pipewright.cluster/1", "preset": "local-cpu",
                                      "devices": 2},
    "ranks_measured": 2, "repeats": 3,
    "sizes": [{"micro_batch_size": 4,
      "layers": [{"f": [110, 110, 900], "b": [210], "i": [130], "w": [120], "opt": [5, 5, 6]},
                 {"f": [60], "b": [70], "i": [70], "w": [2]},
                 {"f": [310], "b": [610], "i": [410], "w": [310]}],
      "whole": {"f": [460], "b": [870]},
      "outside": [{"actions": 80, "ns": [260, 260, 900]}, {"actions": 10, "ns": [50, 50, 51]}]}],
    "transfers": [{"bytes": 1000, "issue": [4, 4, 10], "way": [500, 500, 800]},
                  {"bytes": 9000, "issue": [9], "way": [1400]},
                  {"bytes": 3000, "issue": [8], "way": [9999]}]})",
                    "samples");
}

Profile made_of(const Json& json) {
  return pipewright::profile_from(read_profile_samples(JsonCursor(json, "samples")));
}

TEST(ProfileSamples, WhatAStageCostsBesideItsLayersIsAnActionsOverhead) {
  const Profile profile = made_of(document());
  ASSERT_EQ(profile.sizes.size(), 1U);
  const ProfileSize& size = profile.sizes[0];
  EXPECT_EQ(size.micro_batch_size, 4);
  EXPECT_EQ(size.layers[0].f, Nanoseconds(100));
  EXPECT_EQ(size.layers[2].f, Nanoseconds(300));
  EXPECT_EQ(size.layers[0].i, Nanoseconds(120));
  EXPECT_EQ(size.layers[0].w, Nanoseconds(110));
  EXPECT_EQ(size.layers[0].b(), Nanoseconds(200));
  EXPECT_EQ(size.layers[1].w, Nanoseconds(1));  // not free
  EXPECT_EQ(size.layers[1].b(), Nanoseconds(60));
  EXPECT_EQ(size.layers[0].opt, Nanoseconds(5));
  EXPECT_EQ(profile.action_overhead, Nanoseconds(10 + 3));
  EXPECT_EQ(profile.step_overhead, Nanoseconds(20));
  EXPECT_EQ(size.spreads[0].f.count, 3);
  EXPECT_EQ(size.spreads[1].b.mean, Nanoseconds(70));
  EXPECT_EQ(size.spreads[1].opt.count, 0);
  EXPECT_EQ(profile.ranks_measured, 2);
  EXPECT_EQ(profile.clock, ProfileClock::Wall);
}

TEST(ProfileSamples, SizesOfOtherLengthsStandBesideThoseOfTheUsualOne) {
  Json json = document();
  json["length"] = 64;
  json["sizes"][0]["length"] = 64;
  Json longer = json["sizes"][0];
  longer["length"] = 128;
  longer["layers"][1]["f"] = {90};
  json["sizes"].push_back(longer);
  const Profile profile = made_of(json);
  ASSERT_EQ(profile.sizes.size(), 1U);
  EXPECT_EQ(profile.sizes[0].layers[1].f, Nanoseconds(50));
  EXPECT_EQ(profile.length, 64);
  ASSERT_EQ(profile.lengths.size(), 1U);
  EXPECT_EQ(profile.lengths[0].length, 128);
  EXPECT_LT(profile.sizes[0].layers[1].f, profile.lengths[0].sizes[0].layers[1].f);
  json["length"] = 32;
  EXPECT_EQ(test::refusal([&] { made_of(json); }).pointer(), "/sizes");
}

/// The whole was measured while the machine did nothing else, the layers were not.
TEST(ProfileSamples, NoStageCostsMoreThanItsQuickestLayer) {
  Json json = document();
  json["sizes"][0]["whole"] = {{"f", {100}}, {"b", {100}}};
  const Profile profile = made_of(json);
  EXPECT_EQ(profile.action_overhead, Nanoseconds((60 + 70) / 2 + 3));
  EXPECT_EQ(profile.sizes[0].layers[1].f, Nanoseconds(1));
  EXPECT_EQ(profile.sizes[0].layers[2].f, Nanoseconds(310 - 65));
}

TEST(ProfileSamples, NeitherAnActionNorAStepTakesLessThanNothing) {
  Json json = document();
  json["sizes"][0]["outside"][0]["ns"] = {40};
  EXPECT_EQ(made_of(json).action_overhead, Nanoseconds(10));
  EXPECT_EQ(made_of(json).step_overhead, Nanoseconds(50));
  json["sizes"][0]["outside"][0]["ns"] = {1000};
  EXPECT_EQ(made_of(json).action_overhead, Nanoseconds(10 + 5));
  EXPECT_EQ(made_of(json).step_overhead, Nanoseconds(0));
}

TEST(ProfileSamples, ATransfersLineGoesThroughTheLeastAndTheLargestMessage) {
  const Profile profile = made_of(document());
  EXPECT_EQ(profile.transfer_bytes_per_second, 1e10);
  EXPECT_EQ(profile.transfer_latency, Nanoseconds(500));
  EXPECT_EQ(profile.transfer_issue, Nanoseconds(7 + 3));
}

TEST(ProfileSamples, WithoutTransfersTheyAreTheClusters) {
  Json json = document();
  json.erase("transfers");
  const Profile profile = made_of(json);
  const PortSpec& inside = cluster_preset("local-cpu", 2).inside;
  EXPECT_EQ(profile.transfer_latency, inside.latency);
  EXPECT_EQ(profile.transfer_bytes_per_second, inside.bytes_per_second);
  EXPECT_EQ(profile.transfer_issue, Nanoseconds(0));
}

TEST(ProfileSamples, ABackwardThatWasNotDividedIsAllI) {
  Json json = document();
  for (Json& layer : json["sizes"][0]["layers"]) {
    layer.erase("i");
    layer.erase("w");
  }
  const Profile profile = made_of(json);
  EXPECT_EQ(profile.sizes[0].layers[0].b(), Nanoseconds(200));
  EXPECT_EQ(profile.sizes[0].layers[0].w, Nanoseconds(0));
}

TEST(ProfileSamples, AreAProfileThatIsRead) {
  const Json written = to_json(made_of(document()));
  EXPECT_EQ(to_json(read_profile(JsonCursor(written, "p.json"))), written);
}

TEST(ProfileSamples, RefusesWhatWasNotMeasured) {
  const auto pointer = [](const char* at, const Json& value) {
    Json json = document();
    json[Json::json_pointer(at)] = value;
    return test::refusal([&] { made_of(json); }).pointer();
  };
  EXPECT_EQ(pointer("/sizes/0/layers/1/f", Json::array()), "/sizes/0/layers/1");
  EXPECT_EQ(pointer("/sizes/0/layers/1/w", Json::array()), "/sizes/0/layers/1");
  EXPECT_EQ(pointer("/sizes/0/layers", Json::array()), "/sizes/0/layers");
  EXPECT_EQ(pointer("/sizes", Json::array()), "/sizes");
  EXPECT_EQ(pointer("/sizes/0/outside/0/ns/0", -1), "/sizes/0/outside/0/ns/0");
  EXPECT_EQ(pointer("/sizes/0/outside/1/ns", Json::array()), "/sizes/0/outside/1");
  EXPECT_EQ(pointer("/sizes/0/outside/1/actions", 0), "/sizes/0/outside/1/actions");
  EXPECT_EQ(pointer("/transfers/0/way", Json::array()), "/transfers/0");
}

}  // namespace profile_samples_test
}  // namespace pipewright
