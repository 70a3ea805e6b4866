// Operator graphs and PipeDream profiles with random damage: a reader returns or throws InputError,
// and whatever it accepts is split without a fault, into a split that is one.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/error.hpp"
#include "planner/graph_partition/optimum.hpp"
#include "planner/graph_partition/pipedream_profile.hpp"

namespace pipewright {
namespace {

constexpr int kIterations = 20'000;

std::size_t below(std::mt19937_64& random, std::size_t end) { return random() % end; }

std::string valid_graph(std::mt19937_64& random) {
  Json document = {{"maxSizePerFPGA", 1 + below(random, 9)},
                   {"maxFPGAs", below(random, 4)},
                   {"maxCPUs", below(random, 3)},
                   {"nodes", Json::array()},
                   {"edges", Json::array()}};
  const std::size_t nodes = 1 + below(random, 7);
  for (std::size_t id = 0; id < nodes; ++id) {
    document["nodes"].push_back({{"id", id},
                                 {"supportedOnFpga", below(random, 5) != 0},
                                 {"cpuLatency", below(random, 9)},
                                 {"fpgaLatency", below(random, 5)},
                                 {"isBackwardNode", id >= 5 ? 1 : 0},
                                 {"colorClass", below(random, 6)},
                                 {"size", below(random, 4)}});
    if (id == 0) continue;
    document["edges"].push_back({{"sourceId", below(random, id)}, {"destId", id}, {"cost", 0.25}});
  }
  return document.dump();
}

/// Flips, cuts, doubles or puts in a word, once to three times.
std::string damaged(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> words = {
      "0", "1e18", "-1", "1e-300", "null", "true", "{}", "[", "}", ",", "9999999999", "\"id\""};
  for (std::size_t times = 1 + below(random, 3); times > 0; --times) {
    const std::size_t at = below(random, text.size() + 1), length = below(random, 12);
    const std::size_t how = below(random, 6);
    if (how == 0) text.insert(at, words[below(random, words.size())]);
    if (how == 1) text.erase(at, length);
    if (how == 2) text.insert(at, text.substr(below(random, text.size() + 1), length));
    if (how >= 3 && !text.empty()) {  // a digit for a digit: what is often still a document
      const std::size_t digit = text.find_first_of("0123456789", below(random, text.size()));
      if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(random, 10));
    }
  }
  return text;
}

void expect_a_split(const planner::OperatorGraph& graph, const planner::GraphPartition& found,
                    const std::string& text) {
  std::vector<int> times(graph.nodes.size(), 0);
  double largest = 0;
  for (const auto& device : found.devices) {
    for (const int node : device.nodes) ++times[static_cast<std::size_t>(node)];
    largest = std::max(largest, planner::device_load(graph, device.nodes, device.accelerator));
  }
  for (const int held : times) EXPECT_EQ(held, 1) << text;
  EXPECT_DOUBLE_EQ(largest, found.largest_load) << text;
}

TEST(RandomGraphs, AreRefusedOrSplit) {
  std::mt19937_64 random(20261121);
  int split = 0, refused = 0, impossible = 0;
  for (int k = 0; k < kIterations; ++k) {
    const std::string text = damaged(valid_graph(random), random);
    try {
      const Json document = parse_json(text, "graph.json");
      const auto graph = planner::read_operator_graph(JsonCursor(document, "graph.json"));
      // A small limit, so that some go the way of the graphs that are too wide.
      const auto answer = planner::best_graph_partition(graph, {.ideals = 12});
      if (answer.partition) expect_a_split(graph, *answer.partition, text);
      ++(answer.partition ? split : impossible);
    } catch (const InputError& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "threw " << error.what() << "\nfor " << text;
    }
  }
  EXPECT_GT(split, 500);
  EXPECT_GT(refused, 500);
  EXPECT_GT(impossible, 100);
}

TEST(RandomProfiles, AreRefusedOrSplit) {
  const std::string valid =
      R"({"states": 4, "cumulative_compute_s": [1, 2.5, 2.5, 4],
          "cumulative_parameter_bytes": [0, 10, 20, 20], "output_activation_bytes": [3, 2, 1, 0],
          "predecessors": [[], [[0, 1]], [[0, 2]], [[0, 1], [2, 3]]]})";
  std::mt19937_64 random(7);
  int split = 0, refused = 0;
  for (int k = 0; k < kIterations; ++k) {
    const std::string text = damaged(valid, random);
    try {
      const Json document = parse_json(text, "profile.json");
      const auto profile = planner::read_pipedream_profile(JsonCursor(document, "profile.json"));
      const auto plan = planner::pipedream_partition(profile, {{2, 1e9}, {2, 1e8}}, k % 2 == 0);
      if (!plan.stages.empty()) {
        EXPECT_EQ(plan.stages.front().first, 0) << text;
        EXPECT_EQ(plan.stages.back().end, static_cast<int>(profile.compute_until.size())) << text;
      }
      ++split;
    } catch (const InputError& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "threw " << error.what() << "\nfor " << text;
    }
  }
  EXPECT_GT(split, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace pipewright
