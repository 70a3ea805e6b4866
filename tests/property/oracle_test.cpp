// The interpreter of tests/reference/ against a third reading of the rules, oracle.py, on random
// orders.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/reference/interpreter.hpp"
#include "tests/reference/lowering.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::reference {
namespace oracle_test {

using nlohmann::json;

json oracle(const std::string& arguments) {
  const std::string command =
      std::string("'") + PIPEWRIGHT_PYTHON + "' '" + PIPEWRIGHT_ORACLE + "' " + arguments;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return json::parse(output, nullptr, false);
}

class Oracle : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(PIPEWRIGHT_PYTHON).empty()) GTEST_SKIP() << "no python3";
    if (!std::filesystem::exists(PIPEWRIGHT_ORACLE)) GTEST_SKIP() << "no " << PIPEWRIGHT_ORACLE;
    // A new one each time: other runs of this test may be under way.
    std::string name = testing::TempDir() + "/pipewright_oracle_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr) << name;
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const Order& order) const {
    const std::string path = folder_ / "order.csv";
    std::ofstream(path) << to_csv(order);
    return "'" + path + "'";
  }

  // It knows one rank a stage, rows that are not empty, and none of the bookkeeping actions, waits
  // and batches.
  RandomOptions options_{.most_micro_batches = 4,
                         .transfers = false,
                         .broken = false,
                         .pairs = false,
                         .idle = false,
                         .bookkeeping = false,
                         .replicas = false,
                         .waits = false,
                         .batches = false,
                         .versions = false};
  std::filesystem::path folder_;
};

TEST_F(Oracle, SameVerdictOnRandomOrders) {
  static const char* const channels[] = {"rank", "pair", "edge"};
  std::map<std::string, int> seen;
  for (int seed = 0; seed < 60; ++seed) {
    Dice dice(seed);
    RandomOrder random = random_order(dice, options_);
    if (std::any_of(random.order.begin(), random.order.end(),
                    [](const Row& row) { return row.empty(); }))
      continue;
    random.order = add_communication(random.order);
    // Neighbouring transfer ends change places, so that all verdicts occur.
    for (Row& row : random.order) {
      for (std::size_t i = 0; i + 1 < row.size(); ++i) {
        if (is_transfer(row[i]) && is_transfer(row[i + 1]) && dice.chance(20))
          std::swap(row[i], row[i + 1]);
      }
    }
    Policy policy;
    const int channel = dice.below(3);
    policy.channel = static_cast<Channel>(channel);
    policy.issue = dice.chance(40) ? Issue::Inline : Issue::Stream;
    policy.post = dice.chance(40) ? Post::Deferred : Post::Early;
    const json answer =
        oracle("verdict " + write(random.order) + " --channel " + channels[channel] + " --issue " +
               (policy.issue == Issue::Inline ? "inline" : "stream") + " --post " +
               (policy.post == Post::Deferred ? "deferred" : "early"));
    const Result ours = interpret(random.order, policy, {});
    ++seen[to_string(ours.verdict)];
    EXPECT_EQ(to_string(ours.verdict), answer.at("verdict"))
        << "seed " << seed << ": " << random.what << "\n"
        << to_string(policy) << "\n"
        << to_csv(random.order) << ours.complaint;
  }
  // A test that saw one kind of answer would say little.
  for (const char* verdict : {"ok", "deadlock", "mismatch"}) EXPECT_GT(seen[verdict], 5) << verdict;
}

TEST_F(Oracle, SameTimesOnRandomOrders) {
  const Policy ideal{Issue::Stream,
                     Channel::Tag,
                     Post::AtStart,
                     RunOrder::AsLowered,
                     {Protocol::Credit::Unlimited, 0},
                     {Protocol::Credit::Unlimited, 0}};
  for (int seed = 1000; seed < 1030; ++seed) {
    Dice dice(seed);
    const RandomOrder random = random_order(dice, options_);
    if (std::any_of(random.order.begin(), random.order.end(),
                    [](const Row& row) { return row.empty(); }))
      continue;
    Costs costs;
    for (const char* kind : {"F", "I", "W"}) costs.kind[kind] = dice.between(1, 9);
    costs.latency = dice.below(5);
    const Result ours = interpret(random.order, ideal, costs);
    ASSERT_EQ(to_string(ours.verdict), "ok") << random.what;
    json expected =
        oracle("times " + write(random.order) + " --cost F=" + std::to_string(costs.kind["F"]) +
               ",I=" + std::to_string(costs.kind["I"]) + ",W=" + std::to_string(costs.kind["W"]) +
               ",comm=" + std::to_string(costs.latency));
    json answer = {
        {"makespan", ours.makespan}, {"span", json::array()}, {"peak_activations", json::array()}};
    for (const RankResult& rank : ours.ranks) {
      answer["span"].push_back(rank.span);
      answer["peak_activations"].push_back(rank.peak_activations);
    }
    EXPECT_EQ(answer, expected) << "seed " << seed << ": " << random.what << "\n"
                                << to_csv(random.order);
  }
}

}  // namespace oracle_test
}  // namespace pipewright::reference
