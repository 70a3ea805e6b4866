// SPMD rules of PaddlePaddle 3.3.1: the cases of its tests, and random ones that it answered
// itself.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/spmd/inference_cases.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace spmd_rules_test {

namespace fs = std::filesystem;

/// What Paddle's answer says about a tensor that ours does not.
bool contradicts(const Json& expected, const Json& ours) {
  if (expected.value("dims_mapping", ours.at("dims_mapping")) != ours.at("dims_mapping")) {
    return true;
  }
  if (!expected.contains("is_partial")) return false;
  if (expected.at("is_partial") != ours.at("is_partial")) return true;
  return expected.value("partial_dims", Json::array()) != ours.value("partial_dims", Json::array());
}

bool agrees(const Json& expected, const Json& ours) {
  if (expected.contains("raises") || ours.contains("raises")) {
    return expected.contains("raises") == ours.contains("raises");
  }
  for (const char* side : {"inputs", "outputs"}) {
    const Json asserted = expected.value(side, Json::object());
    for (const auto& [place, fields] : asserted.items()) {
      if (!ours.at(side).contains(place)) return false;
      if (contradicts(fields, ours.at(side).at(place))) return false;
    }
  }
  return true;
}

/// How many cases of each operator differ, with the ids of those; "" counts all cases.
std::map<std::string, std::set<std::string>> differences(const fs::path& path, std::size_t& count) {
  const Json document = parse_json(golden::text_of(path), path.string());
  const auto cases = spmd::read_inference_cases(JsonCursor(document, path.string()));
  std::map<std::string, std::set<std::string>> differing;
  count = cases.size();
  for (std::size_t at = 0; at < cases.size(); ++at) {
    const Json ours = to_json(spmd::answer_to(cases[at]), cases[at].call.mesh);
    if (!agrees(document.at("spmd_cases").at(at).at("expect"), ours)) {
      differing[cases[at].call.name].insert(cases[at].id);
    }
  }
  return differing;
}

TEST(SpmdRules, AllCasesOfPaddlesTestsAgree) {
  const fs::path path = golden::golden_dir() / "paddle/spmd.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  std::size_t count = 0;
  for (const auto& [name, ids] : differences(path, count)) {
    ADD_FAILURE() << name << ": " << ::testing::PrintToString(ids);
  }
  EXPECT_EQ(count, 261U);
}

/// docs/distributed-tensors.md has a row for each of these operators.
TEST(SpmdRules, RandomCasesDifferOnlyWhereThePageSaysWhy) {
  const fs::path path = golden::golden_dir() / "paddle/spmd_random.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  std::size_t count = 0, differing = 0;
  const std::set<std::string> explained = {
      "c_embedding", "conv2d",   "cross_entropy_with_softmax", "flash_attention", "gather_nd",
      "softmax",     "transpose"};
  for (const auto& [name, ids] : differences(path, count)) {
    differing += ids.size();
    EXPECT_EQ(explained.count(name), 1U) << name << ": " << ::testing::PrintToString(ids);
  }
  EXPECT_EQ(count, 2371U);
  EXPECT_LE(differing * 50, count) << differing << " differ";
}

}  // namespace spmd_rules_test
}  // namespace pipewright
