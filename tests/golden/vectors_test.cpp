// The vectors of tests/golden/vectors/, each worked out by hand, against the interpreter of
// tests/reference/ and the library.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/golden/vector_file.hpp"
#include "tests/reference/interpreter.hpp"

namespace pipewright::tests {
namespace vectors_test {

using nlohmann::json;
using reference::CycleElement;
using reference::Head;
using reference::interpret;
using reference::Mismatch;
using reference::RankResult;
using reference::Result;
using reference::Timed;

/// What the interpreter says, in the form of `expect`, but only what the vector speaks of.
json answer(const Result& result, const json& expect) {
  json all = {{"verdict", to_string(result.verdict)}, {"makespan", result.makespan}};
  for (const char* key : {"lists", "stuck", "cycle", "mismatches", "busy", "span", "peak"})
    all[key] = json::array();
  std::map<std::string, json> ends;
  for (const RankResult& rank : result.ranks) {
    std::string list;
    for (const Timed& timed : rank.instructions) {
      list += (list.empty() ? "" : " ") + timed.instruction;
      ends[timed.instruction] = timed.end ? json(*timed.end) : json(nullptr);
    }
    all["lists"].push_back(list);
    all["busy"].push_back(rank.busy);
    all["span"].push_back(rank.span);
    all["peak"].push_back(rank.peak_activations);
  }
  for (const Head& head : result.stuck) all["stuck"].push_back({head.rank, head.instruction});
  for (const CycleElement& e : result.cycle)
    all["cycle"].push_back({e.rank, e.instruction, e.waits_for, e.behind});
  for (const Mismatch& m : result.mismatches) all["mismatches"].push_back({m.rank, m.recv, m.send});
  json said = json::object();
  for (const auto& [key, value] : expect.items()) {
    if (key == "ends") {
      for (const auto& [instruction, end] : value.items())
        said["ends"][instruction] = ends.count(instruction) ? ends[instruction] : json("not there");
    } else if (all.contains(key)) {
      said[key] = all[key];
    }
  }
  return said;
}

class Vectors : public testing::TestWithParam<json> {};

TEST_P(Vectors, InterpreterAgrees) {
  const json& vector = GetParam();
  SCOPED_TRACE(vector.at("name").get<std::string>() + ": " + vector.at("why").get<std::string>());
  const Case c = case_of(vector);
  const Result result = interpret(c.order, c.policy, c.costs, c.fragment, c.heading);
  json expect = vector.at("expect");
  for (const auto& [key, value] :
       std::map<const char*, double>{{"bubble_ratio", result.bubble_ratio},
                                     {"span_bubble_ratio", result.span_bubble_ratio}}) {
    if (!expect.contains(key)) continue;
    EXPECT_DOUBLE_EQ(value, expect.at(key).at(0).get<double>() / expect.at(key).at(1).get<double>())
        << key;
    expect.erase(key);
  }
  EXPECT_EQ(answer(result, expect).dump(1), expect.dump(1)) << result.complaint;
}

TEST_P(Vectors, LibraryAgrees) {
  const Case c = case_of(GetParam());
  SCOPED_TRACE(GetParam().at("name").get<std::string>() + ": " +
               GetParam().at("why").get<std::string>());
  EXPECT_EQ(of_library(c), of_reference(c)) << shown(c);
}

INSTANTIATE_TEST_SUITE_P(ByHand, Vectors, testing::ValuesIn(all_vectors()), [](const auto& test) {
  return std::to_string(test.index) + "_" + test_name(test.param);
});

}  // namespace vectors_test
}  // namespace pipewright::tests
