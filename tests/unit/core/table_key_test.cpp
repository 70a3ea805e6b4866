#include "core/costs/table_key.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "core/costs/action_times.hpp"
#include "core/costs/collective_model.hpp"

namespace pipewright {
namespace table_key_test {

CostTable table() {
  CostTable costs = CostTable::uniform(2, {.f = Nanoseconds(3), .b = Nanoseconds(5)});
  costs.memory.resize(2);
  costs.activation_bytes = costs.gradient_bytes = {Bytes(7)};
  costs.parameter_bytes = {Bytes(1), Bytes(2)};
  costs.route_of_edge = {{}, {Nanoseconds(4), 1e9, {0}}, {}, {}};
  costs.links = {{"port", 1e9, Sharing::Fair}};
  return costs;
}

std::string key_of(const CostTable& costs) {
  ContentKey key;
  key.add(costs);
  return key.text();
}

TEST(TableKey, IsOfAllThatATableSaysButItsSource) {
  const std::vector<std::function<void(CostTable&)>> changes = {
      [](CostTable& t) { t.stages[1].w = Nanoseconds(1); },
      [](CostTable& t) { std::swap(t.stages[0].f, t.stages[0].b); },
      [](CostTable& t) { t.stages.emplace_back(); },
      [](CostTable& t) { t.memory[1].copied_weights = Bytes(1); },
      [](CostTable& t) { t.memory.clear(); },
      [](CostTable& t) { t.activation_bytes.front() = Bytes(8); },
      [](CostTable& t) { t.gradient_bytes.front() = Bytes(8); },
      [](CostTable& t) { std::swap(t.parameter_bytes[0], t.parameter_bytes[1]); },
      [](CostTable& t) { t.tied_bytes = Bytes(1); },
      [](CostTable& t) { t.overlapped_pair = Nanoseconds(1); },
      [](CostTable& t) { t.pairs = {Nanoseconds(0)}; },
      [](CostTable& t) { t.every_route.bytes_per_second = 1; },
      [](CostTable& t) { t.route_of_edge[1].bytes_per_second *= 1 + 1e-15; },
      [](CostTable& t) { t.route_of_edge[1].links.clear(); },
      [](CostTable& t) { std::swap(t.route_of_edge[1], t.route_of_edge[2]); },
      [](CostTable& t) { t.ranks_of_replica = 1; },
      [](CostTable& t) { t.ranks_of_entry = 2; },
      [](CostTable& t) { t.links[0].name = "porT"; },
      [](CostTable& t) { t.links[0].sharing = Sharing::Serial; },
      [](CostTable& t) { t.collectives = std::make_shared<CollectivePrices>(); },
      [](CostTable& t) {
        t.collectives = std::make_shared<CollectivePrices>(
            CollectivePrices{.model = {.step_ns = 1}, .device_of_rank = {}});
      },
      [](CostTable& t) {
        const ActionTime row{
            .rank = RankId(0), .action = *parse_timed_action("0F0"), .time = Nanoseconds(1)};
        t.actions = std::make_shared<ActionTimes>(std::vector{row}, ReplicaShape{});
      },
  };
  std::set<std::string> keys = {key_of(table())};
  for (const auto& change : changes) {
    CostTable changed = table();
    change(changed);
    keys.insert(key_of(changed));
  }
  EXPECT_EQ(keys.size(), 1 + changes.size());

  CostTable renamed = table();
  renamed.source = "somebody's profile";
  EXPECT_EQ(key_of(renamed), key_of(table()));
}

}  // namespace table_key_test
}  // namespace pipewright
