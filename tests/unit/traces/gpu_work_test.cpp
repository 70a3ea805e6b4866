// Kernels in a trace: below the actions that they make up, and no actions themselves.
#include "core/timeline/gpu_work.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/trace_rules.hpp"
#include "tests/support/traced.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/trace.hpp"

namespace pipewright::traces {
namespace gpu_work_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

GpuWork kernel(int rank, InstructionId of, std::int64_t from, std::int64_t to,
               std::uint32_t stream = 7) {
  return {GpuWork::Kind::Kernel, RankId(rank), of, stream, "gemm", from, to, 0};
}

/// In us: 0F0 [0,10], 1F0 [15,25], 1B0 [25,45], 0B0 [50,70].
test::Traced two_ranks() {
  return test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"),
                          "F=10us,B=20us,comm=5us");
}

std::string text_of(const test::Traced& t, std::vector<GpuWork> work) {
  return chrome_trace(
      t.program, t.timeline, t.costs,
      {.title = "test", .kind = TraceInfo::Kind::Measured, .work = std::move(work)});
}

/// By sort index, the threads of a rank.
std::vector<std::string> threads_of(const json& trace, int rank) {
  std::map<int, std::string> names, order;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("pid") != rank + 1) continue;
    if (event.value("name", "") == "thread_name")
      names[event.at("tid")] = event.at("args").at("name");
    if (event.value("name", "") == "thread_sort_index")
      order[event.at("args").at("sort_index")] = names.at(event.at("tid"));
  }
  std::vector<std::string> sorted;
  for (const auto& [index, name] : order) sorted.push_back(name);
  EXPECT_EQ(sorted.size(), names.size()) << "two threads have one place";
  return sorted;
}

TEST(GpuWork, StandsBelowTheActions) {
  const test::Traced t = two_ranks();
  const std::string text =
      text_of(t, {kernel(0, t.id("0F0"), 1000, 4000),
                  kernel(0, t.id("0F0"), 3000, 9000),
                  {GpuWork::Kind::Copy, RankId(0), kNoInstruction, 8, "", 12'000, 13'000, 64},
                  {GpuWork::Kind::Clear, RankId(1), t.id("1F0"), 3, "", 15'000, 16'000, 32}});
  const json trace = json::parse(text);
  EXPECT_THAT(threads_of(trace, 0), ElementsAre("compute", "GPU stream 7", "GPU stream 7 #2",
                                                "GPU stream 8", "to 1", "from 1", "bubble"));
  std::vector<std::string> slices;
  for (const json& event : trace.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    if (category != "kernel" && category != "gpu_memcpy" && category != "gpu_memset") continue;
    slices.push_back(category + " " + std::string(event.at("name")) + " " +
                     event.at("args").dump());
  }
  EXPECT_THAT(slices,
              ElementsAre(R"(kernel gemm {"launched_by":"0F0"})",
                          R"(kernel gemm {"launched_by":"0F0"})", R"(gpu_memcpy copy {"bytes":64})",
                          R"(gpu_memset clear {"bytes":32,"launched_by":"1F0"})"));
  EXPECT_THAT(test::trace_facts(text).problems, IsEmpty());
}

TEST(GpuWork, IsNoActionWhenTheTraceIsReadBack) {
  const test::Traced t = two_ranks();
  std::vector<GpuWork> work;
  for (const char* action : {"0F0", "1F0", "1B0", "0B0"}) {
    const InstructionId id = t.id(action);
    for (std::int64_t at = t.timeline.start[id]; at < t.timeline.end[id]; at += 1000)
      work.push_back(kernel(t.program.rank_of(id).value, id, at, at + 900));
  }
  std::stable_sort(work.begin(), work.end(), [](const GpuWork& a, const GpuWork& b) {
    return std::pair(a.rank.value, a.start_ns) < std::pair(b.rank.value, b.start_ns);
  });
  const TraceTimeline with = parse_trace(text_of(t, work), "with.json");
  const TraceTimeline without = parse_trace(text_of(t, {}), "without.json");
  EXPECT_EQ(with.makespan_ns, without.makespan_ns);
  ASSERT_EQ(with.ranks.size(), without.ranks.size());
  for (std::size_t r = 0; r < with.ranks.size(); ++r) {
    EXPECT_EQ(with.ranks[r].lanes, without.ranks[r].lanes);
    ASSERT_EQ(with.ranks[r].spans.size(), without.ranks[r].spans.size());
    for (std::size_t s = 0; s < with.ranks[r].spans.size(); ++s) {
      EXPECT_EQ(to_string(with.ranks[r].spans[s].cell), to_string(without.ranks[r].spans[s].cell));
      EXPECT_EQ(with.ranks[r].spans[s].start_ns, without.ranks[r].spans[s].start_ns);
      EXPECT_EQ(with.ranks[r].spans[s].end_ns, without.ranks[r].spans[s].end_ns);
    }
  }
}

TEST(GpuWork, ShareIsOfTheComputationsThatHaveAny) {
  const test::Traced t = two_ranks();
  const InstructionId f = t.id("0F0"), b = t.id("0B0");  // 10 us and 20 us
  GpuWorkLog log;
  EXPECT_EQ(share_at_work(t.program, t.timeline, log), 0);
  // Overlapping pieces count once, and only inside of their computation: 5 + 10 of 30 us.
  log.work = {kernel(0, f, -1000, 3000), kernel(0, f, 2000, 5000, 8), kernel(0, f, 2500, 2600, 9),
              kernel(0, b, 60'000, 90'000)};
  EXPECT_DOUBLE_EQ(share_at_work(t.program, t.timeline, log), 0.5);
}

}  // namespace gpu_work_test
}  // namespace pipewright::traces
