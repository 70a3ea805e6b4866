// The published schemas against the readers and writers: what is valid for one is valid for the
// other, and each key that a writer emits stands in the schema.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/model/architecture_json.hpp"
#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright::test {
namespace schemas_test {

const std::string kRoot = PIPEWRIGHT_SOURCE_DIR;

const SchemaSet& schemas() {
  static const SchemaSet set(kRoot + "/docs/schemas");
  return set;
}

void expect_valid(const std::string& kind, const Json& document, const std::string& what) {
  for (const std::string& problem : schemas().problems(kind, document)) {
    ADD_FAILURE() << what << ": " << problem;
  }
}

TEST(Schemas, ExampleFilesAreValidForSchemaAndReader) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/examples")) {
    if (entry.path().extension() != ".json") {
      continue;
    }
    const std::string path = entry.path().string();
    const Json document = parse_json(read_text(path), path);
    if (!document.is_object() || !document.contains("schema")) continue;  // another tool's format
    const std::string tag = document.at("schema").get<std::string>();
    const std::string kind = tag.substr(11, tag.find('/') - 11);  // "pipewright.KIND/1"
    expect_valid(kind, document, path);
    EXPECT_NO_THROW(read_as(kind, document)) << path;
    ++files;
  }
  EXPECT_GE(files, 8);
}

TEST(Schemas, SamplesAndWhatOurWritersEmit) {
  for (const Sample& sample : sample_documents()) {
    const std::string what = sample.kind + ", " + sample.name;
    expect_valid(sample.kind, sample.document, what);
    expect_valid(sample.kind, rewritten(sample.kind, sample.document), what + ", written");
  }
}

TEST(Schemas, PresetsAreValid) {
  for (const std::string_view name : model_preset_names()) {
    expect_valid("model", to_json(model_preset(name)), std::string(name));
  }
  for (const std::string_view name : cluster_preset_names()) {
    expect_valid("cluster", to_json(cluster_preset(name)), std::string(name));
  }
  for (const std::string_view name : architecture_preset_names()) {
    expect_valid("architecture", to_json(architecture_preset(name)), std::string(name));
    const Json by_name = {{"schema", "pipewright.architecture/1"}, {"preset", name}};
    expect_valid("architecture", by_name, std::string(name));
  }
}

TEST(Schemas, PresetAndPolicyNamesAreAllInThem) {
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    Json document = to_json(sample_plan());
    document["policy"] = preset.name;
    expect_valid("plan", document, std::string(preset.name));
  }
}

/// read(write(x)) written again gives the same bytes.
TEST(RoundTrip, SameBytes) {
  for (const Sample& sample : sample_documents()) {
    const Json once = rewritten(sample.kind, sample.document);
    const std::string text = to_text(once);
    EXPECT_EQ(to_text(rewritten(sample.kind, parse_json(text, "again"))), text)
        << sample.kind << ", " << sample.name;
  }
}

}  // namespace schemas_test
}  // namespace pipewright::test
