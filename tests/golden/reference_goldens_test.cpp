// The interpreter of tests/reference/ against other systems' answers: deadlock verdicts of
// PyTorch's orders, and times of the zero-bubble orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/reference/interpreter.hpp"

namespace pipewright::reference {
namespace reference_goldens_test {

using nlohmann::json;

const std::filesystem::path golden = PIPEWRIGHT_GOLDEN_DIR;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Model {
  const char* field;  // in manifest.json
  Policy policy;
};

std::vector<Model> models() {
  std::vector<Model> all;
  for (const Post post : {Post::Early, Post::Deferred}) {
    const bool early = post == Post::Early;
    all.push_back({early ? "rendezvous_asis" : "rendezvous_naive_defer",
                   {Issue::Inline, Channel::Edge, post}});
    all.push_back({early ? "async_rank_asis" : "async_rank_naive_defer",
                   {Issue::Stream, Channel::Rank, post}});
    all.push_back({early ? "async_pair_asis" : "async_pair_naive_defer",
                   {Issue::Stream, Channel::Pair, post}});
    all.push_back({early ? "async_edge_asis" : "async_edge_naive_defer",
                   {Issue::Stream, Channel::Edge, post}});
  }
  return all;
}

class PyTorchReference : public testing::TestWithParam<Model> {};

TEST_P(PyTorchReference, SameVerdict) {
  const auto folder = golden / "pytorch" / "orders";
  if (!std::filesystem::exists(folder / "manifest.json"))
    GTEST_SKIP() << "no " << folder / "manifest.json";
  for (const json& entry : json::parse(contents(folder / "manifest.json"))) {
    const std::string file = entry.at("comms_csv");
    std::string expected = entry.at(GetParam().field);
    if (expected == "order-mismatch") expected = "mismatch";
    const Result result = interpret(contents(folder / file), GetParam().policy, {});
    EXPECT_EQ(to_string(result.verdict), expected) << file << " " << result.complaint;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, PyTorchReference, testing::ValuesIn(models()),
                         [](const auto& test) { return std::string(test.param.field); });

TEST(PyTorchReference, SameCommunication) {
  const auto folder = golden / "pytorch" / "orders";
  if (!std::filesystem::exists(folder / "manifest.json"))
    GTEST_SKIP() << "no " << folder / "manifest.json";
  for (const json& entry : json::parse(contents(folder / "manifest.json"))) {
    const Order lowered = parse_order(contents(folder / entry.at("comms_csv").get<std::string>()));
    const Result result =
        interpret(contents(folder / entry.at("compute_csv").get<std::string>()), {}, {});
    ASSERT_EQ(result.ranks.size(), lowered.size());
    for (std::size_t rank = 0; rank < lowered.size(); ++rank) {
      std::vector<std::string> ours, theirs;
      for (const Timed& timed : result.ranks[rank].instructions) ours.push_back(timed.instruction);
      for (const Cell& cell : lowered[rank]) theirs.push_back(text(cell));
      EXPECT_EQ(ours, theirs) << entry.at("compute_csv") << " rank " << rank;
    }
  }
}

class ZeroBubble : public testing::TestWithParam<const char*> {};

TEST_P(ZeroBubble, SameTimes) {
  const auto folder = golden / "zero_bubble";
  if (!std::filesystem::exists(folder / GetParam())) GTEST_SKIP() << "no " << folder / GetParam();
  const Policy ideal{Issue::Stream,
                     Channel::Tag,
                     Post::AtStart,
                     RunOrder::AsLowered,
                     {Protocol::Credit::Unlimited, 0},
                     {Protocol::Credit::Unlimited, 0}};
  int orders = 0;
  for (const json& entry : json::parse(contents(folder / GetParam()))) {
    if (!entry.contains("order_csv") || entry.at("order_csv").is_null()) continue;
    const std::string file = entry.at("order_csv");
    SCOPED_TRACE(file);
    Costs costs;
    costs.kind = {{"F", entry.at("F")}, {"I", entry.at("B")}, {"W", entry.at("W")}};
    costs.latency = entry.at("comm");
    const Result result = interpret(contents(folder / "orders" / file), ideal, costs);
    ASSERT_EQ(to_string(result.verdict), "ok") << result.complaint;
    const json& evaluated = entry.at("evaluated");
    EXPECT_EQ(static_cast<double>(result.makespan), evaluated.at("makespan").get<double>());
    std::int64_t max_span = 0;
    std::vector<double> peaks;
    for (const RankResult& rank : result.ranks) {
      max_span = std::max(max_span, rank.span);
      peaks.push_back(rank.peak_activations);
    }
    EXPECT_EQ(static_cast<double>(max_span), evaluated.at("max_span").get<double>());
    EXPECT_EQ(peaks, evaluated.at("peak_live_chunks_until_W_per_rank").get<std::vector<double>>());
    EXPECT_NEAR(result.bubble_ratio, evaluated.at("bubble_rate_makespan").get<double>(), 1e-9);
    EXPECT_NEAR(result.span_bubble_ratio, evaluated.at("bubble_rate_span").get<double>(), 1e-9);
    ++orders;
  }
  EXPECT_GT(orders, 0);
  RecordProperty("orders", orders);
}

INSTANTIATE_TEST_SUITE_P(Goldens, ZeroBubble,
                         testing::Values("grid.json", "unequal.json", "unit_small.json"),
                         [](const auto& test) {
                           return std::string(test.param, std::string_view(test.param).find('.'));
                         });

}  // namespace reference_goldens_test
}  // namespace pipewright::reference
