// checkpoint.json and names.json: the schemas against the readers and the writer.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "exec/checkpoint/array_names.hpp"
#include "exec/checkpoint/checkpoint_json.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace checkpoint_format_test {

Json sample() {
  const exec::CheckpointFacts facts{.model = model_preset("mlp"),
                                    .step = 12,
                                    .updates = 48,
                                    .optimizer = "adamw",
                                    .seed = UINT64_MAX,
                                    .numerics = "exact",
                                    .micro_batches = 4,
                                    .micro_batch_size = 2};
  const std::vector<exec::CheckpointPart> parts = {
      {"rank-0.0000abcd.bin", 40, 0xabcdU, {{"0.up/weight", "value", 0, 10, 10, 0}}},
      {"rank-1.ffffffff.bin", 20, 0xffffffffU, {{"0.up/weight", "mean", 5, 10, 5, 0}}}};
  return exec::to_json(facts, parts);
}

/// The same with its checksum.
Json sealed_sample() {
  const exec::CheckpointManifest whole = exec::read_checkpoint_manifest(JsonCursor(sample(), ""));
  return parse_json(exec::sealed_text(whole.facts, whole.parts), "checkpoint.json");
}

exec::CheckpointManifest read(const Json& document) {
  return exec::read_checkpoint_manifest(JsonCursor(document, "checkpoint.json"));
}

TEST(CheckpointFormat, WhatIsWrittenReadsTheSameAndFitsTheSchema) {
  const SchemaSet schemas(PIPEWRIGHT_SOURCE_DIR "/docs/schemas");
  const Json document = sample();
  for (const std::string& problem : schemas.problems("checkpoint", document))
    ADD_FAILURE() << problem;
  const exec::CheckpointManifest manifest = read(document);
  EXPECT_EQ(to_text(exec::to_json(manifest.facts, manifest.parts)), to_text(document));
}

TEST(CheckpointFormat, TheChecksumIsThatOfTheWholeFileAndStandsLast) {
  const SchemaSet schemas(PIPEWRIGHT_SOURCE_DIR "/docs/schemas");
  const Json document = sealed_sample();
  for (const std::string& problem : schemas.problems("checkpoint", document))
    ADD_FAILURE() << problem;
  EXPECT_EQ(std::prev(document.end()).key(), "crc32");
  const std::string text = to_text(document), crc = read(document).crc;
  EXPECT_EQ(crc, document["crc32"]);
  EXPECT_TRUE(exec::has_checksum(text, crc));
  EXPECT_FALSE(exec::has_checksum(text + " ", crc));
  EXPECT_FALSE(exec::has_checksum(text, "0000abcd"));
  EXPECT_EQ(read(sample()).crc, "");
}

/// Calls visit with the document less each of its keys, whatever their depth outside the model.
void without_each_key(const Json& document, const std::function<void(const Json&)>& visit) {
  const auto walk = [&](const auto& self, const Json& at, const std::string& pointer) -> void {
    if (!at.is_structured() || pointer == "/model") return;
    for (auto member = at.begin(); member != at.end(); ++member) {
      std::string inner = pointer + "/";
      inner += at.is_object() ? member.key() : std::to_string(member - at.begin());
      if (at.is_object()) {
        Json less = document;
        less.at(Json::json_pointer(pointer)).erase(member.key());
        SCOPED_TRACE(inner);
        visit(less);
      }
      self(self, member.value(), inner);
    }
  };
  walk(walk, document, "");
}

TEST(CheckpointFormat, AMissingKeyIsRefusedByBoth) {
  const SchemaSet schemas(PIPEWRIGHT_SOURCE_DIR "/docs/schemas");
  int keys = 0;
  without_each_key(sample(), [&](const Json& less) {
    ++keys;
    EXPECT_FALSE(schemas.problems("checkpoint", less).empty());
    EXPECT_THROW(read(less), InputError);
  });
  EXPECT_EQ(keys, 10 + 2 * (4 + 6));
}

TEST(CheckpointFormat, AChecksumThatIsNoneIsRefused) {
  for (const char* bad : {"", "0000abc", "0000ABCD", "0000abcg", "00000abcd"}) {
    Json document = sample();
    document["parts"][0]["crc32"] = bad;
    EXPECT_THROW(read(document), InputError) << bad;
    document = sealed_sample();
    document["crc32"] = bad;
    EXPECT_THROW(read(document), InputError) << bad;
  }
}

TEST(NamesFormat, TheSchemaAndTheReaderTakeTheExampleAndNothingLess) {
  const SchemaSet schemas(PIPEWRIGHT_SOURCE_DIR "/docs/schemas");
  const std::string file = PIPEWRIGHT_SOURCE_DIR "/examples/names/gpt2.json";
  Json document = parse_json(read_text(file), file);
  document["arrays"].push_back(
      {{"ours", "*"}, {"theirs", {"a", "b"}}, {"columns", {1, 2}}, {"rows", 3}});
  for (const std::string& problem : schemas.problems("names", document)) ADD_FAILURE() << problem;
  EXPECT_FALSE(exec::ArrayNames::read(JsonCursor(document, file)).empty());
  const auto refused = [&](const Json& bad) {
    EXPECT_FALSE(schemas.problems("names", bad).empty());
    EXPECT_THROW(exec::ArrayNames::read(JsonCursor(bad, file)), InputError);
  };
  for (const char* key : {"/ours", "/theirs"}) {
    Json less = document;
    less["arrays"][0].erase(key + 1);
    refused(less);
  }
  const std::vector<std::pair<std::string, Json>> values = {{"rows", 0},
                                                            {"rows", "64"},
                                                            {"columns", Json::array({0, 1})},
                                                            {"theirs", Json::array()},
                                                            {"theirs", ""},
                                                            {"transposed", 1},
                                                            {"row", 64}};
  for (const auto& [key, value] : values) {
    SCOPED_TRACE(key);
    Json bad = document;
    bad["arrays"].back()[key] = value;
    refused(bad);
  }
}

}  // namespace checkpoint_format_test
}  // namespace pipewright::test
