// Valid documents of every kind, for tests that read them, change them and break them. Each holds
// every key that its format has (where keys exclude each other, one of them).
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"

namespace pipewright::test {

/// gpt-tiny in two stages on local-cpu, 1f1b with four micro-batches, with an order written out,
/// a memory table, routes of its own and all records filled.
Plan sample_plan();
Profile sample_profile();

struct Sample {
  std::string kind;  // "model", "cluster", "profile", "plan", "order", "job", "architecture",
                     // "framework", "graph"
  std::string name;  // tells the samples of one kind apart
  Json document;
};
std::vector<Sample> sample_documents();

/// Reads the document with the reader of its kind; the cursor's file is "sample.json".
void read_as(const std::string& kind, const Json& document);
/// Parses and reads.
void read_text_as(const std::string& kind, std::string_view text);
/// Reads the document and writes it again.
Json rewritten(const std::string& kind, const Json& document);

}  // namespace pipewright::test
