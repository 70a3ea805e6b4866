// Every value of every sample is taken out, replaced by something of each other type, and given a
// neighbour that nobody knows. What the published schema refuses the reader has to refuse too, and
// near the place that was changed; whatever it says, it says by an InputError.
#include <gtest/gtest.h>

#include "tests/support/expect_refusal.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright::test {
namespace {

void collect(const Json& value, const std::string& pointer, std::vector<std::string>& places) {
  if (!pointer.empty()) {
    places.push_back(pointer);
  }
  for (auto member = value.begin(); value.is_structured() && member != value.end(); ++member) {
    const std::string part =
        value.is_object() ? member.key() : std::to_string(std::distance(value.begin(), member));
    collect(member.value(), pointer + "/" + part, places);
  }
}

class Agreement {
 public:
  void try_out(const std::string& kind, const Json& document, const std::string& place) {
    const bool valid = schemas_.problems(kind, document).empty();
    bool accepted = false;
    try {
      read_as(kind, document);
      accepted = true;
    } catch (const InputError& error) {
      EXPECT_EQ(error.file(), "sample.json");
      expect_one_line(error);
      const std::string& pointer = error.pointer();
      EXPECT_TRUE(valid || place.starts_with(pointer) || pointer.starts_with(place))
          << "changed " << place << ", blamed: " << error.what();
    }
    EXPECT_TRUE(valid || !accepted)
        << kind << " with a change at " << place
        << " is against the schema, and was read: " << schemas_.problems(kind, document).front();
    ++tried_;
    refused_ += accepted ? 0 : 1;
  }

  int tried() const { return tried_; }
  int refused() const { return refused_; }

 private:
  SchemaSet schemas_{std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas"};
  int tried_ = 0, refused_ = 0;
};

const std::vector<Json>& replacements() {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           -1,
                                           0,
                                           0.5,
                                           1e300,
                                           INT64_MAX,
                                           UINT64_MAX,
                                           "",
                                           "wrong",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({1, 2}),
                                           Json{{"x", 1}}};
  return values;
}

void take_out(Json& document, const Json::json_pointer& place) {
  Json& parent = document.at(place.parent_pointer());
  if (parent.is_array()) {
    parent.erase(static_cast<std::size_t>(std::stoul(place.back())));
  } else {
    parent.erase(place.back());
  }
}

TEST(SchemaAgreement, WhatTheSchemaRefusesTheReaderRefuses) {
  Agreement agreement;
  for (const Sample& sample : sample_documents()) {
    std::vector<std::string> places;
    collect(sample.document, "", places);
    for (const std::string& place : places) {
      SCOPED_TRACE(sample.kind + ", " + sample.name + ", " + place);
      const Json::json_pointer pointer(place);
      for (const Json& value : replacements()) {
        Json document = sample.document;
        document[pointer] = value;
        agreement.try_out(sample.kind, document, place);
      }
      Json document = sample.document;
      take_out(document, pointer);
      agreement.try_out(sample.kind, document, pointer.parent_pointer().to_string());
      document = sample.document;
      if (document.at(pointer).is_object()) {
        document.at(pointer)["nobody_knows_this"] = 1;
        agreement.try_out(sample.kind, document, place);
      }
    }
  }
  // Most changes break a document; that many are tried says that the samples were walked at all.
  EXPECT_GT(agreement.tried(), 3000);
  EXPECT_GT(agreement.refused(), agreement.tried() / 2);
}

}  // namespace
}  // namespace pipewright::test
