#include "core/plan/profile.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/plan/profile_lengths.hpp"
#include "tests/support/expect_refusal.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright {
namespace profile_test {

Json changed(const char* pointer, const Json& value) {
  Json document = to_json(test::sample_profile());
  document[Json::json_pointer(pointer)] = value;
  return document;
}

InputError refused(const Json& document) {
  return test::refusal([&] { read_profile(JsonCursor(document, "p.json")); });
}

TEST(ReadProfile, GivesBackWhatWasWritten) {
  const Profile written = test::sample_profile();
  const Json document = to_json(written);
  const Profile read = read_profile(JsonCursor(document, "p.json"));
  EXPECT_EQ(read.model_name, "mlp");
  EXPECT_EQ(fingerprint(read.cluster), fingerprint(written.cluster));
  ASSERT_EQ(read.sizes.size(), 2U);
  EXPECT_EQ(read.sizes[1].micro_batch_size, 4);
  EXPECT_EQ(read.sizes[1].layers[2].w, Nanoseconds(4000));
  EXPECT_EQ(read.sizes[0].loss.i, Nanoseconds(60));
  EXPECT_EQ(read.transfer_bytes_per_second, 6.5e9);
  EXPECT_EQ(read.action_overhead, Nanoseconds(300));
  EXPECT_EQ(read.step_overhead, Nanoseconds(4000));
}

TEST(ReadProfile, KeepsWhatABackwardTakesByItselfAndWhatHandingOverATransferTakes) {
  const Json document = to_json(test::sample_profile());
  const Profile read = read_profile(JsonCursor(document, "p.json"));
  const LayerTimes& layer = read.sizes[1].layers[1];
  EXPECT_EQ(layer.b(), Nanoseconds(2 * 4000 - 200));
  EXPECT_EQ(document.at("/sizes/1/layers/1/b_ns"_json_pointer), 7800);
  EXPECT_EQ(read.sizes[1].spreads[1].b, test::sample_profile().sizes[1].spreads[1].b);
  EXPECT_EQ(read.transfer_issue, Nanoseconds(90));
  const Json longer = changed("/sizes/1/layers/1/b_ns", 9000);  // than I and W
  EXPECT_EQ(read_profile(JsonCursor(longer, "p.json")).sizes[1].layers[1].b(), Nanoseconds(9000));
  EXPECT_EQ(refused(changed("/sizes/1/layers/1/b_ns", -1)).pointer(), "/sizes/1/layers/1/b_ns");
  EXPECT_EQ(refused(changed("/transfer/issue_ns", "1us")).pointer(), "/transfer/issue_ns");
}

TEST(ReadProfile, ABackwardIsIAndWWhereNothingElseIsSaid) {
  Json document = to_json(test::sample_profile());
  document["transfer"].erase("issue_ns");
  for (Json& size : document["sizes"]) size["layers"][1].erase("b_ns");
  const Profile read = read_profile(JsonCursor(document, "p.json"));
  EXPECT_EQ(read.sizes[1].layers[1].b(), Nanoseconds(8000));
  EXPECT_EQ(read.transfer_issue, Nanoseconds(0));
  const Json again = to_json(read);
  EXPECT_FALSE(again.at("transfer").contains("issue_ns"));
  EXPECT_FALSE(again.at("/sizes/1/layers/1"_json_pointer).contains("b_ns"));
}

TEST(ReadProfile, SizesAscendAndHaveEquallyManyLayers) {
  EXPECT_EQ(refused(changed("/sizes/1/micro_batch_size", 1)).pointer(),
            "/sizes/1/micro_batch_size");
  Json document = to_json(test::sample_profile());
  document["sizes"][1]["layers"].erase(0);
  EXPECT_EQ(refused(document).pointer(), "/sizes/1/layers");
  EXPECT_EQ(refused(changed("/sizes", Json::array())).pointer(), "/sizes");
  EXPECT_EQ(refused(changed("/sizes/0/layers/1/f_ns", -1)).pointer(), "/sizes/0/layers/1/f_ns");
}

TEST(ReadProfile, KeepsWhatDividedLayersTake) {
  const Json document = to_json(test::sample_profile());
  const Profile read = read_profile(JsonCursor(document, "p.json"));
  const DividedProfile* const halves = find_divided(read, {2, 1});
  ASSERT_NE(halves, nullptr);
  EXPECT_EQ(halves->ranks_measured, 4);
  EXPECT_EQ(halves->sizes[1].layers[0].f, Nanoseconds(2400));
  EXPECT_EQ(halves->sizes[1].spreads[2].f, read.sizes[1].spreads[2].f);
  EXPECT_EQ(find_divided(read, {2, 2}), nullptr);
  EXPECT_FALSE(document.at("divided").at(0).at("sizes").at(0).contains("loss"));
}

TEST(ReadProfile, RefusesDividedLayersOfAnotherKindThanTheWhole) {
  EXPECT_EQ(refused(changed("/divided/0/tp", 1)).pointer(), "/divided/0");
  EXPECT_EQ(refused(changed("/divided/0/ep", 0)).pointer(), "/divided/0/ep");
  EXPECT_EQ(refused(changed("/divided/0/sizes/1/micro_batch_size", 8)).pointer(),
            "/divided/0/sizes");
  Json document = to_json(test::sample_profile());
  document["divided"].push_back(document["divided"][0]);
  EXPECT_EQ(refused(document).pointer(), "/divided/1");
  document["divided"][1]["sequence_parallel"] = true;
  EXPECT_TRUE(read_profile(JsonCursor(document, "p.json")).divided[1].ranks.rows);
  document["divided"][1]["ep"] = 2;  // other ranks
  EXPECT_EQ(read_profile(JsonCursor(document, "p.json")).divided.size(), 2U);
  document["divided"][1]["cp"] = 4;
  EXPECT_EQ(read_profile(JsonCursor(document, "p.json")).divided[1].ranks.context, 4);
  document["divided"][1]["cp_comm_type"] = "p2p";
  const Profile ring = read_profile(JsonCursor(document, "p.json"));
  EXPECT_TRUE(ring.divided[1].ranks.ring);
  EXPECT_EQ(to_json(ring).at("divided").at(1).at("cp_comm_type"), "p2p");
  document["divided"][1]["sizes"][0]["loss"] = {{"f_ns", 1}, {"i_ns", 1}};
  EXPECT_EQ(refused(document).pointer(), "/divided/1/sizes/0/loss");
}

TEST(ReadProfile, KeepsHowTheMeasurementsAreSpread) {
  const Profile written = test::sample_profile();
  const Json document = to_json(written);
  const Profile read = read_profile(JsonCursor(document, "p.json"));
  ASSERT_EQ(read.sizes[1].spreads.size(), 3U);
  EXPECT_EQ(read.sizes[1].spreads[2].f, written.sizes[1].spreads[2].f);
  EXPECT_EQ(read.sizes[1].spreads[2].w.count, 0);  // was not measured, so it is not written
  EXPECT_EQ(read.sizes[1].f_ns_per_message_byte, 0.25);
  EXPECT_EQ(read.sizes[1].i_ns_per_message_byte, 0.5);
  EXPECT_EQ(refused(changed("/sizes/0/layers/0/spread/f/quantiles_ns/3", 1)).pointer(),
            "/sizes/0/layers/0/spread/f/quantiles_ns/3");
  Json half = to_json(written);
  half["sizes"][0]["layers"][1].erase("spread");
  EXPECT_EQ(refused(half).pointer(), "/sizes/0/layers");
}

TEST(ReadProfile, KeepsSamplesOfOtherLengths) {
  const Profile written = test::sample_profile();
  const Profile read = read_profile(JsonCursor(to_json(written), "p.json"));
  EXPECT_EQ(read.length, 64);
  ASSERT_EQ(read.lengths.size(), 2U);
  EXPECT_EQ(read.lengths[1].length, 256);
  EXPECT_EQ(read.lengths[1].sizes[0].layers[0].f, Nanoseconds(25'600));
  EXPECT_EQ(refused(changed("/lengths/1/length", 16)).pointer(), "/lengths/1/length");
  EXPECT_EQ(refused(changed("/lengths/1/length", 64)).pointer(), "/lengths/1/length");
  EXPECT_EQ(refused(changed("/lengths/0/sizes/0/micro_batch_size", 2)).pointer(),
            "/lengths/0/sizes");
}

/// F and B of the three layers take 3 · (4000 + 8000) - 200 at the usual length, where F is 100 a
/// token at others.
TEST(LengthScale, IsMeasuredOrOnTheLineBetweenTwoThatWere) {
  const Profile profile = test::sample_profile();
  const auto expected = [](int length) { return (300.0 * length + 23'800) / 35'800; };
  EXPECT_DOUBLE_EQ(length_scale(profile, 64), 1);
  EXPECT_DOUBLE_EQ(length_scale(profile, 16), expected(16));
  EXPECT_DOUBLE_EQ(length_scale(profile, 256), expected(256));
  EXPECT_DOUBLE_EQ(length_scale(profile, 160), (1 + expected(256)) / 2);
  EXPECT_DOUBLE_EQ(length_scale(profile, 40), (1 + expected(16)) / 2);
}

TEST(LengthScale, KnowsNothingOutsideOfWhatWasMeasured) {
  Profile profile = test::sample_profile();
  const auto why = [&](int length) {
    return test::refusal([&] { length_scale(profile, length); }).message();
  };
  EXPECT_THAT(why(15), testing::HasSubstr("16 to 256"));
  EXPECT_THAT(why(257), testing::HasSubstr("16 to 256"));
  profile.lengths.clear();
  EXPECT_THAT(why(64), testing::HasSubstr("several lengths"));
}

TEST(ReadProfile, ReadsFilesFromBeforeThereWereSpreads) {
  Json document = to_json(test::sample_profile());
  document.erase("clock");
  for (Json& size : document["sizes"]) {
    size.erase("message_copy");
    for (Json& layer : size["layers"]) layer.erase("spread");
  }
  const Profile read = read_profile(JsonCursor(document, "p.json"));
  EXPECT_EQ(read.clock, ProfileClock::Wall);
  EXPECT_TRUE(read.sizes[0].spreads.empty());
  EXPECT_EQ(read.sizes[0].f_ns_per_message_byte, 0);
  EXPECT_EQ(read.sizes[1].layers[2].w, Nanoseconds(4000));
}

/// A straight line from 90 % up to it would make the mean three times as long.
TEST(Distribution, AnOutlierCountsAsTheOneThatItWas) {
  std::vector<std::int64_t> samples(999, 1000);
  samples.push_back(51'000);
  const Distribution found = distribution_of(samples);
  constexpr int kPlaces = 100'000;
  double sum = 0;
  for (int k = 0; k < kPlaces; ++k) sum += found.at((k + 0.5) / kPlaces);
  EXPECT_NEAR(sum / kPlaces, 1050, 1);
  EXPECT_LT(found.at(0.99), 1100);
  EXPECT_DOUBLE_EQ(found.at(1), 51'000);
  EXPECT_DOUBLE_EQ(distribution_of({7, 7, 7}).at(0.95), 7);
}

TEST(Distribution, HoldsTheQuantilesOfElevenMeasurements) {
  std::vector<std::int64_t> samples;
  for (int k = 10; k >= 0; --k) samples.push_back(100 * k);
  samples[0] = 2100;  // instead of 1000
  const Distribution found = distribution_of(samples);
  EXPECT_EQ(found.count, 11);
  EXPECT_EQ(found.mean, Nanoseconds(600));
  const std::vector<std::int64_t> expected = {0, 100, 250, 500, 750, 900, 2100};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(found.quantiles[i], Nanoseconds(expected[i])) << i;
  EXPECT_DOUBLE_EQ(found.at(0.5), 500);
  // (175 * 0.15 + 375 * 0.25 + 625 * 0.25 + 825 * 0.15) / 0.8
  EXPECT_EQ(found.middle_mean(), Nanoseconds(500));
  EXPECT_DOUBLE_EQ(found.at(0.3), 300);  // a fifth of the way from 250 to 500
  // Below 90 % lie 405 of the mean of 600, so the mean above is 1950, 0.875 of the way from 900 to
  // 2100: a power of 1 / 0.875 - 1.
  EXPECT_DOUBLE_EQ(found.at(0.95), 900 + 1200 * std::pow(0.5, 1.0 / 7));
  EXPECT_DOUBLE_EQ(found.at(1), 2100);
  EXPECT_EQ(distribution_of({}).count, 0);
}

}  // namespace profile_test
}  // namespace pipewright
