// Operator graphs and PipeDream profiles as files: what is wrong is refused at its place.
#include <gtest/gtest.h>

#include "planner/graph_partition/chains.hpp"
#include "planner/graph_partition/optimum.hpp"
#include "planner/graph_partition/pipedream_profile.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::test {
namespace graph_partition_reader_test {

/// Two forward nodes in a row, and a backward node of the second's colour.
Json small_graph() {
  return Json::parse(R"({"maxSizePerFPGA": 8, "maxFPGAs": 2, "maxCPUs": 1,
    "nodes": [
      {"id": 10, "name": "a", "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 1,
       "isBackwardNode": 0, "colorClass": 3, "size": 4},
      {"id": 20, "supportedOnFpga": true, "cpuLatency": 9, "fpgaLatency": 2.5,
       "isBackwardNode": false, "colorClass": 7},
      {"id": 30, "supportedOnFpga": 0, "cpuLatency": 1, "fpgaLatency": 0, "isBackwardNode": 1,
       "colorClass": 7, "size": 0, "layerId": "x"}],
    "edges": [{"sourceId": 10, "destId": 20, "cost": 0.5, "size": 4},
              {"sourceId": 20, "destId": 30, "cost": 0}]})");
}

planner::OperatorGraph read(const Json& document) {
  return planner::read_operator_graph(JsonCursor(document, "graph.json"));
}

struct Fault {
  const char* place;
  const char* value;  // "-": taken out
  const char* blamed;
};

Json broken(Json document, const Fault& fault) {
  const Json::json_pointer place(fault.place);
  if (std::string(fault.value) != "-") {
    document[place] = Json::parse(fault.value);
    return document;
  }
  document.at(place.parent_pointer()).erase(place.back());
  return document;
}

TEST(OperatorGraphReader, ReadsFlagsOfBothKindsAndColoursByTheirFirstNode) {
  const auto graph = read(small_graph());
  ASSERT_EQ(graph.nodes.size(), 3U);
  EXPECT_EQ(graph.colours, 2);
  EXPECT_EQ(graph.nodes[1].colour, graph.nodes[2].colour);
  EXPECT_TRUE(graph.nodes[1].runs_on_accelerator);
  EXPECT_FALSE(graph.nodes[2].runs_on_accelerator);
  EXPECT_TRUE(graph.nodes[2].backward);
  EXPECT_DOUBLE_EQ(graph.nodes[0].output_cost, 0.5);
  EXPECT_EQ(graph.edges[1].source, 1);
  EXPECT_EQ(graph.edges[1].target, 2);
}

TEST(OperatorGraphReader, RefusesWhatIsMissingOrWrongAtItsPlace) {
  const Fault faults[] = {
      {"/maxFPGAs", "-", ""},
      {"/maxSizePerFPGA", "-", ""},
      {"/maxSizePerFPGA", "-1", "/maxSizePerFPGA"},
      {"/maxCPUs", "65", "/maxCPUs"},
      {"/maxCPUs", "1.5", "/maxCPUs"},
      {"/nodes", "-", ""},
      {"/nodes", "[]", "/nodes"},
      {"/nodes", "{}", "/nodes"},
      {"/edges", "-", ""},
      {"/maxGPUs", "2", "/maxGPUs"},
      {"/nodes/0/id", "-", "/nodes/0"},
      {"/nodes/0/id", "-1", "/nodes/0/id"},
      {"/nodes/1/id", "10", "/nodes/1/id"},
      {"/nodes/0/fpgaLatency", "-", "/nodes/0"},
      {"/nodes/0/fpgaLatency", "-0.5", "/nodes/0/fpgaLatency"},
      {"/nodes/0/cpuLatency", R"("9")", "/nodes/0/cpuLatency"},
      {"/nodes/0/cpuLatency", "-9", "/nodes/0/cpuLatency"},
      {"/nodes/0/size", "-4", "/nodes/0/size"},
      {"/nodes/0/supportedOnFpga", "2", "/nodes/0/supportedOnFpga"},
      {"/nodes/0/isBackwardNode", "-", "/nodes/0"},
      {"/nodes/0/colorClass", "0.5", "/nodes/0/colorClass"},
      {"/nodes/0/colourClass", "1", "/nodes/0/colourClass"},
      {"/edges/0/sourceId", "11", "/edges/0/sourceId"},
      {"/edges/0/destId", "40", "/edges/0/destId"},
      {"/edges/0/destId", "-", "/edges/0"},
      {"/edges/0/cost", "-", "/edges/0"},
      {"/edges/0/cost", "-0.1", "/edges/0/cost"},
      {"/edges/0/weight", "1", "/edges/0/weight"},
      {"/edges/1/destId", "10", "/edges"},
      {"/edges/0/destId", "10", "/edges"},
      {"/edges/1/sourceId", "10", "/edges/1/cost"},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(std::string(fault.place) + " = " + fault.value);
    const Json document = broken(small_graph(), fault);
    const InputError error = refusal([&] { read(document); });
    EXPECT_EQ(error.file(), "graph.json");
    EXPECT_EQ(error.pointer(), fault.blamed) << error.what();
    expect_one_line(error);
  }
}

TEST(OperatorGraphReader, RefusesAnEdgeFromBackwardToForwardAndAGraphWithoutDevices) {
  Json backward = small_graph();
  backward["edges"][1] = {{"sourceId", 30}, {"destId", 20}, {"cost", 0}};
  EXPECT_EQ(refusal([&] { read(backward); }).pointer(), "/edges/1");
  Json none = small_graph();
  none["maxFPGAs"] = 0;
  none["maxCPUs"] = 0;
  EXPECT_EQ(refusal([&] { read(none); }).pointer(), "/maxCPUs");
}

TEST(GraphPartition, OperatorsThatTakeNoTimeArePlacedByTheCostOfMovingTheirOutputs) {
  Json document = small_graph();
  document["maxCPUs"] = 0;
  document["nodes"].erase(2);
  document["edges"].erase(1);
  for (Json& node : document["nodes"]) {
    node["cpuLatency"] = 0;
    node["fpgaLatency"] = 0;
    node["size"] = 5;  // two do not fit one device
  }
  const auto partition = planner::optimal_graph_partition(read(document));
  ASSERT_TRUE(partition.has_value());
  EXPECT_EQ(partition->devices.size(), 2U);
  EXPECT_DOUBLE_EQ(partition->largest_load, 0.5);
}

TEST(GraphPartition, ALoadBesideAMuchLargerCostThatIsNotPaidIsStillRight) {
  Json document = small_graph();
  document["edges"][0]["cost"] = 1e17;  // only paid by those who cut it
  document["maxSizePerFPGA"] = 100;
  document["nodes"][2]["supportedOnFpga"] = 1;
  const auto partition = planner::optimal_graph_partition(read(document));
  ASSERT_TRUE(partition.has_value());
  EXPECT_DOUBLE_EQ(partition->largest_load, 3.5);
}

TEST(GraphPartition, AGraphThatIsTooWideIsCutAlongSomeOrdersWithABound) {
  // Twelve operators side by side: 4096 ideals, 13 along each of 32 orders.
  Json document = {{"maxSizePerFPGA", 3}, {"maxFPGAs", 4}, {"maxCPUs", 0}};
  for (int id = 0; id < 12; ++id) {
    document["nodes"].push_back({{"id", id},
                                 {"supportedOnFpga", 1},
                                 {"cpuLatency", 1},
                                 {"fpgaLatency", 1 + id % 3},
                                 {"isBackwardNode", 0},
                                 {"size", 1}});
  }
  document["edges"] = Json::array();
  const auto graph = read(document);
  const auto exact = planner::best_graph_partition(graph);
  ASSERT_TRUE(exact.exact && exact.partition);
  EXPECT_DOUBLE_EQ(exact.partition->largest_load, 6);
  const auto chain = planner::best_graph_partition(graph, {.ideals = 100});
  ASSERT_TRUE(!chain.exact && chain.partition);
  EXPECT_EQ(chain.partition->ideals % 13, 0);
  EXPECT_GE(chain.partition->largest_load, exact.partition->largest_load);
  EXPECT_LE(chain.partition->lower_bound, exact.partition->largest_load);
  EXPECT_GT(chain.partition->lower_bound, 0);
  EXPECT_THROW(planner::optimal_graph_partition(graph, {.ideals = 100}), InputError);
}

TEST(GraphPartition, OrdersAreTopologicalAndTheirChainsGrowByOneElement) {
  const auto order = planner::elements_of(read(small_graph()));
  for (int number = 0; number < 5; ++number) {
    const std::vector<int> sequence = planner::topological_order(order, number);
    ASSERT_EQ(sequence.size(), order.elements.size());
    std::vector<bool> done(sequence.size(), false);
    for (const int element : sequence) {
      for (const int before : order.elements[static_cast<std::size_t>(element)].before) {
        EXPECT_TRUE(done[static_cast<std::size_t>(before)]);
      }
      done[static_cast<std::size_t>(element)] = true;
    }
    const auto lattice = planner::chain_of(sequence);
    ASSERT_EQ(lattice.count(), static_cast<int>(sequence.size()) + 1);
    for (int ideal = 0; ideal < lattice.count(); ++ideal) {
      for (std::size_t place = 0; place < sequence.size(); ++place) {
        EXPECT_EQ(lattice.holds(ideal, sequence[place]), static_cast<int>(place) < ideal);
      }
    }
  }
}

Json small_profile() {
  return Json::parse(R"({"states": 3, "cumulative_compute_s": [1, 2, 4],
    "cumulative_parameter_bytes": [0, 0, 8], "output_activation_bytes": [5, 6, 0],
    "predecessors": [[], [[0, 1]], [[0, 1], [1, 2]]]})");
}

TEST(PipeDreamProfileReader, ReadsRangesAndTheWordForAllLowerStates) {
  const Json document = small_profile();
  const auto profile = planner::read_pipedream_profile(JsonCursor(document, "profile.json"));
  ASSERT_EQ(profile.predecessors.size(), 3U);
  EXPECT_EQ(profile.predecessors[2], (std::vector<bool>{true, true, false}));
  Json chain = document;
  chain["predecessors"] = "all_lower";
  EXPECT_TRUE(
      planner::read_pipedream_profile(JsonCursor(chain, "profile.json")).predecessors.empty());
  const Json two = {{"a", chain}, {"b", document}};
  EXPECT_TRUE(planner::is_pipedream_profile(JsonCursor(two, "profiles.json")));
  EXPECT_EQ(planner::pipedream_models(JsonCursor(two, "profiles.json")),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(planner::pipedream_models(JsonCursor(chain, "profiles.json")).empty());
  const Json graph = small_graph();
  EXPECT_FALSE(planner::is_pipedream_profile(JsonCursor(graph, "graph.json")));
}

/// State 0 feeds two branches, 1 and 2, of 5 and 3; 3 joins them. A sum counts what lies before a
/// state, so it may fall from one branch to the other, and nowhere else.
TEST(PipeDreamProfileReader, SumsFallWhereAGraphBranchesAndNotAlongABranch) {
  Json document = Json::parse(R"({"states": 4, "cumulative_compute_s": [1, 6, 4, 10],
    "cumulative_parameter_bytes": [8, 8, 7.999999999999, 20],
    "output_activation_bytes": [1, 1, 1, 0],
    "predecessors": [[], [[0, 1]], [[0, 1]], [[0, 3]]]})");
  const auto profile = planner::read_pipedream_profile(JsonCursor(document, "profile.json"));
  EXPECT_EQ(profile.compute_until, (std::vector<double>{1, 6, 4, 10}));
  const auto blamed = [&] {
    return refusal([&] { planner::read_pipedream_profile(JsonCursor(document, "profile.json")); })
        .pointer();
  };
  document["cumulative_compute_s"] = {1, 6, 4, 5};  // below branch 1, which it counts
  EXPECT_EQ(blamed(), "/cumulative_compute_s/3");
  document["cumulative_compute_s"] = {5, 6, 4, 10};  // below the state that feeds it
  EXPECT_EQ(blamed(), "/cumulative_compute_s/2");
  document["cumulative_compute_s"] = {1, 6, 4, 10};
  document["predecessors"] = "all_lower";  // as a chain it falls
  EXPECT_EQ(blamed(), "/cumulative_compute_s/2");
}

TEST(PipeDreamProfileReader, RefusesWhatIsMissingOrWrongAtItsPlace) {
  const Fault faults[] = {
      {"/states", "-", ""},
      {"/states", "0", "/states"},
      {"/states", "4", "/cumulative_compute_s"},
      {"/cumulative_compute_s", "-", ""},
      {"/cumulative_compute_s/1", "0.5", "/cumulative_compute_s/1"},
      {"/cumulative_compute_s/0", "-1", "/cumulative_compute_s/0"},
      {"/cumulative_parameter_bytes", "[0, 0]", "/cumulative_parameter_bytes"},
      {"/output_activation_bytes", "7", "/output_activation_bytes"},
      {"/predecessors", "-", ""},
      {"/predecessors", R"("all_lowre")", "/predecessors"},
      {"/predecessors", "[[], []]", "/predecessors"},
      {"/predecessors/1/0", "[0, 2]", "/predecessors/1/0/1"},
      {"/predecessors/1/0", "[1, 0]", "/predecessors/1/0/0"},
      {"/predecessors/1/0", "[0]", "/predecessors/1/0"},
      {"/predecesors", "[]", "/predecesors"},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(std::string(fault.place) + " = " + fault.value);
    const Json document = broken(small_profile(), fault);
    const InputError error =
        refusal([&] { planner::read_pipedream_profile(JsonCursor(document, "profile.json")); });
    EXPECT_EQ(error.file(), "profile.json");
    EXPECT_EQ(error.pointer(), fault.blamed) << error.what();
    expect_one_line(error);
  }
}

}  // namespace graph_partition_reader_test
}  // namespace pipewright::test
