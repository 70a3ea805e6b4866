// Paddle's job lists, before and after the fix of its hang, and what the Program makes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace paddle_orders_test {

using planner::make_order;

/// "forward1:3" -> type "forward", chunk 1, micro-batch 3.
struct Job {
  std::string type;
  int chunk = 0, micro_batch = 0;
};

Job parse_job(const std::string& text) {
  const auto colon = text.find(':');
  Job job;
  job.type = text.substr(0, colon);
  job.micro_batch = std::stoi(text.substr(colon + 1));
  const auto digit = job.type.find_last_not_of("0123456789") + 1;
  if (digit < job.type.size()) {
    job.chunk = std::stoi(job.type.substr(digit));
    job.type.resize(digit);
  }
  return job;
}

/// The cells that Paddle's list stands for. A fused job brings its receive and its send along; in a
/// split list forward keeps its send and backward keeps its receive.
std::string cells_of(const nlohmann::json& jobs, int rank, int ranks, int chunks, bool split) {
  const int last = ranks * chunks - 1;
  std::string row;
  const auto add = [&](const char* kind, int stage, int m) {
    row += (row.empty() ? "" : ",") + std::to_string(stage) + kind + std::to_string(m);
  };
  for (const auto& text : jobs) {
    const Job job = parse_job(text);
    const int stage = job.chunk * ranks + rank, m = job.micro_batch;
    if (job.type == "recv_forward" || (!split && job.type == "forward")) {
      if (stage > 0) add("RECV_F", stage, m);
    }
    if (job.type == "forward") {
      add("F", stage, m);
      if (stage < last) add("SEND_F", stage, m);
    }
    if (job.type == "backward") {
      if (stage < last) add("RECV_B", stage, m);
      add("B", stage, m);
    }
    if (job.type == "send_backward" || (!split && job.type == "backward")) {
      if (stage > 0) add("SEND_B", stage, m);
    }
  }
  return row;
}

/// For lists that bring no transfer ends into ours.
std::string computations_of(const nlohmann::json& jobs, int rank, int ranks) {
  std::string row;
  for (const auto& text : jobs) {
    const Job job = parse_job(text);
    if (job.type == "optimizer") continue;
    static const std::map<std::string, std::string> kKinds = {
        {"forward", "F"}, {"backward", "B"}, {"backward_b", "I"}, {"backward_w", "W"}};
    row += (row.empty() ? "" : ",") + std::to_string(job.chunk * ranks + rank) +
           kKinds.at(job.type) + std::to_string(job.micro_batch);
  }
  return row;
}

TEST(PaddleOrders, EqualEveryListOfPaddle) {
  const auto path = golden::golden_dir() / "paddle/schedules.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  struct Ours {
    const char* schedule;
    const char* jobs;
  };
  const std::map<std::string, Ours> ours = {
      {"FThenB", {"FThenB", nullptr}},
      {"Eager1F1B", {"Eager1F1B", nullptr}},
      {"ZBH1", {"ZBH1", nullptr}},
      {"1F1B(old IR)", {"1F1B", "fused"}},
      {"1F1B(PIR)", {"1F1B", "split"}},
      {"VPP(before #71104)", {"paddle-vpp", "fused"}},
      {"VPP(after #71104, PIR)", {"paddle-vpp", "split"}},
  };
  int compared = 0;
  const auto document = nlohmann::json::parse(golden::text_of(path));
  for (const auto& entry : document["static"]) {
    const auto found = ours.find(entry["schedule"]);
    ASSERT_NE(found, ours.end()) << entry["schedule"];
    const int p = entry["pp_degree"], v = entry["vpp_degree"];
    planner::ScheduleRequest request{p, entry["num_micro_batches"], v, {}};
    const char* jobs = found->second.jobs;
    if (jobs != nullptr) request.parameters["jobs"] = jobs;
    SCOPED_TRACE(found->first + " " + std::to_string(p) + " " +
                 std::to_string(request.micro_batches) + " " + std::to_string(v));
    const Order order = make_order(found->second.schedule, request);
    for (int r = 0; r < p; ++r) {
      const auto& list = entry["stages"][static_cast<std::size_t>(r)];
      const std::string expected = jobs == nullptr
                                       ? computations_of(list, r, p)
                                       : cells_of(list, r, p, v, std::string(jobs) == "split");
      const std::string actual = golden::rows_of(order)[static_cast<std::size_t>(r)];
      EXPECT_EQ(actual, expected) << "stage " << r;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 14);
}

/// Paddle's dynamic mode orders VPP as PyTorch's interleaved 1F1B does, idle slots included.
TEST(PaddleOrders, DynamicVppIsInterleaved) {
  const auto path = golden::golden_dir() / "paddle/schedules.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int compared = 0;
  const auto document = nlohmann::json::parse(golden::text_of(path));
  for (const auto& entry : document["dynamic_vpp_actions"]) {
    std::string csv;
    for (const auto& slots : entry["ranks"]) {
      std::string row;
      for (std::size_t k = 0; k < slots.size(); ++k) {
        row += (k == 0 ? "" : ",") +
               (slots[k].is_null() ? std::string() : slots[k].get<std::string>());
      }
      csv += row + "\n";
    }
    const planner::ScheduleRequest request{
        entry["pp_group_size"], entry["n_microbatches"], entry["n_local_stages"], {}};
    EXPECT_EQ(write_order_csv(make_order("interleaved", request)), csv);
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST(PaddleOrders, InterleavedWithJobsIsPaddleVpp) {
  for (const char* jobs : {"fused", "split"}) {
    const planner::ScheduleRequest request{4, 8, 2, {{"jobs", jobs}}};
    EXPECT_EQ(golden::rows_of(make_order("VPP", request)),
              golden::rows_of(make_order("paddle-vpp", request)));
  }
  EXPECT_EQ(planner::resolve_schedule("VPP", {{"jobs", "split"}}).policy, "paddle-vpp");
  EXPECT_EQ(planner::resolve_schedule("VPP", {}).name, "interleaved");
}

/// The hang that Paddle fixed, at the sizes for which the derivation says that it shows.
class PaddleHang : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(PaddleHang, FusedHangsAndSplitPasses) {
  const auto [p, m, v] = GetParam();
  const CommPolicy& policy = comm_policy_preset("paddle-vpp");
  const CostTable costs = CostTable::uniform(p * v, {});
  planner::ScheduleRequest request{p, m, v, {}};
  const auto verdict = [&](const char* jobs) {
    request.parameters["jobs"] = jobs;
    const Order order = make_order("paddle-vpp", request);
    EXPECT_TRUE(problems_of(order).empty());
    return sim::check(lower(order, policy), costs).verdict;
  };
  EXPECT_EQ(verdict("fused"), Verdict::Deadlock);
  EXPECT_EQ(verdict("split"), Verdict::Ok);
}

INSTANTIATE_TEST_SUITE_P(Sizes, PaddleHang,
                         ::testing::Values(std::tuple(4, 8, 2), std::tuple(4, 12, 2),
                                           std::tuple(4, 16, 2), std::tuple(8, 16, 2),
                                           std::tuple(4, 8, 4), std::tuple(3, 6, 2)));

}  // namespace paddle_orders_test
}  // namespace pipewright
