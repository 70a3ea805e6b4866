#include "core/profile.hpp"

#include <gtest/gtest.h>

#include "tests/support/expect_refusal.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright {
namespace {

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

}  // namespace
}  // namespace pipewright
