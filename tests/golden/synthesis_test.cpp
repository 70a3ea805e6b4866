// Synthesis against the zero-bubble authors: the proved optima of their integer program, and their
// automatic schedules for unequal costs under the same memory. With
// PIPEWRIGHT_SYNTHESIS_TABLE=file all of these are compared, with a second for each, and the file
// gets the table of docs/evidence/benchmarks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright::planner {
namespace synthesis_test {

using golden::golden_dir;
using nlohmann::json;

nlohmann::json entries(const char* file) {
  return json::parse(golden::text_of(golden_dir() / "zero_bubble" / file));
}

SynthesisRequest request_of(const json& entry, Placement placement) {
  SynthesisRequest request;
  request.placement = std::move(placement);
  request.micro_batches = entry["m"];
  StageCosts each;
  each.f = Nanoseconds(entry["F"].get<std::int64_t>());
  each.i = Nanoseconds(entry["B"].get<std::int64_t>());
  each.w = Nanoseconds(entry["W"].get<std::int64_t>());
  each.b = each.i + each.w;
  request.costs = CostTable::uniform(request.placement.stages(), each,
                                     Nanoseconds(entry["comm"].get<std::int64_t>()));
  request.objective = Objective::Span;
  return request;
}

/// A run of the authors' automatic schedules as a request: with their memory and limit, or, where
/// the generator takes none, with the peak of its own order.
SynthesisRequest request_of_run(const json& run) {
  const int p = run["p"];
  auto request =
      request_of(run, run["chunks"] == 2 ? Placement::v_shape(p) : Placement::loop(p, 1));
  const auto bytes = [](const json& number) {
    return Bytes(static_cast<std::int64_t>(number.get<double>()));
  };
  const json& memory = run["peer_mem_inputs"];
  if (!memory.contains("max_mem")) {
    request.memory_limit = {bytes(run["evaluated"]["peak_live_chunks_until_W"])};
    return request;
  }
  request.costs.memory.assign(
      static_cast<std::size_t>(request.placement.stages()),
      {bytes(memory["mem_f"]), bytes(memory["mem_b"]), bytes(memory["mem_w"]), Bytes(0)});
  request.memory_limit = {bytes(memory["max_mem"])};
  return request;
}

bool is_automatic(const json& run) {
  const std::string name = run["schedule"];
  return name.rfind("ZB", 0) == 0 || name.rfind("V-", 0) == 0;
}

std::int64_t span_by_engine(const SynthesisResult& result, const CostTable& costs) {
  const Program program = lower(*result.order, comm_policy_preset("ideal"));
  const sim::Result run = sim::simulate(program, costs);
  EXPECT_TRUE(run.finished);
  std::int64_t span = 0;
  for (const auto& rank : figures_of(program, run.timeline, costs).ranks)
    span = std::max(span, rank.span_ns);
  return span;
}

TEST(SynthesisGolden, EqualsEveryOptimumOfTheIntegerProgramAndProvesIt) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden_dir() / "zero_bubble/ilp.json");
  int proven = 0;
  const json file = entries("ilp.json");
  for (const json& run : file["runs"]) {
    SCOPED_TRACE(run.dump());
    auto request = request_of(run, Placement::loop(run["p"], 1));
    request.memory_limit = {Bytes(run["max_mem_in_M_B"].get<std::int64_t>())};
    request.steps = 100'000;
    request.prove = true;
    const SynthesisResult result = synthesise(request);
    EXPECT_EQ(static_cast<double>(result.value_ns), run["ilp_objective"].get<double>());
    EXPECT_EQ(span_by_engine(result, request.costs), result.value_ns);
    EXPECT_TRUE(result.proven);
    ++proven;
  }
  EXPECT_EQ(proven, 19);
}

struct Score {
  int better = 0, optimal = 0, equal = 0, worse = 0;  // optimal: equal, and at the lower bound

  void count(std::int64_t ours, std::int64_t theirs, bool at_bound) {
    ++(ours < theirs ? better : ours > theirs ? worse : at_bound ? optimal : equal);
  }
};

TEST(SynthesisGolden, BeatsTheAuthorsAutomaticSchedulesWhereTheyAreAboveTheBound) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden_dir() / "zero_bubble/unequal.json");
  Score score;
  for (const json& run : entries("unequal.json")) {
    if (!is_automatic(run) || run["p"] != 4) continue;
    SCOPED_TRACE(run["schedule"].get<std::string>() + " m " + run["m"].dump());
    auto request = request_of_run(run);
    request.steps = 1'500'000;
    const SynthesisResult result = synthesise(request);
    const auto theirs = run["evaluated"]["max_span"].get<std::int64_t>();
    EXPECT_LE(result.lower_bound_ns, theirs);
    EXPECT_EQ(span_by_engine(result, request.costs), result.value_ns);
    score.count(result.value_ns, theirs, result.proven);
  }
  EXPECT_EQ(score.better + score.optimal + score.equal + score.worse, 42);
  EXPECT_GE(score.optimal, 20);
  EXPECT_GE(score.better, 17);
  EXPECT_LE(score.worse, 2);
}

/// One row of the table.
std::string row_of(const json& run, const SynthesisResult& result) {
  char row[400];
  const auto theirs = run["evaluated"]["max_span"].get<double>();
  std::snprintf(row, sizeof row,
                "| %s | %d | %d | %d/%d/%d/%d | %.0f | %lld | %+.2f %% | %lld | %.2f %% | %s |\n",
                run["schedule"].get<std::string>().c_str(), run["p"].get<int>(),
                run["m"].get<int>(), run["F"].get<int>(), run["B"].get<int>(), run["W"].get<int>(),
                run["comm"].get<int>(), theirs, static_cast<long long>(result.value_ns),
                100.0 * (static_cast<double>(result.value_ns) / theirs - 1.0),
                static_cast<long long>(result.lower_bound_ns), 100.0 * result.gap,
                result.found_by.c_str());
  return row;
}

TEST(SynthesisGolden, TableOfAllComparisons) {
  const char* const path = std::getenv("PIPEWRIGHT_SYNTHESIS_TABLE");
  if (path == nullptr)
    GTEST_SKIP() << "writes a table only where PIPEWRIGHT_SYNTHESIS_TABLE is set";
  PIPEWRIGHT_NEEDS_GOLDEN(golden_dir() / "zero_bubble/unequal.json");
  std::ostringstream rows;
  Score score;
  for (const json& run : entries("unequal.json")) {
    if (!is_automatic(run)) continue;
    const SynthesisResult result = synthesise(request_of_run(run));
    score.count(result.value_ns, run["evaluated"]["max_span"].get<std::int64_t>(), result.proven);
    rows << row_of(run, result);
  }
  std::ofstream file(path);
  file << "Better in " << score.better << ", equal and optimal in " << score.optimal
       << ", equal in " << score.equal << ", worse in " << score.worse << " cases.\n\n"
       << "| their schedule | p | m | F/I/W/latency | their span | ours | difference | lower bound "
          "| gap | begun with |\n|---|---|---|---|---|---|---|---|---|---|\n"
       << rows.str();
  ASSERT_TRUE(file.flush());
}

}  // namespace synthesis_test
}  // namespace pipewright::planner
