// The lists that PyTorch 2.13 and 2.15 make of their own schedules, under all options: each is read
// and written back, ours are the same, and the page of their verdicts says what check says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/export/pytorch_actions.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace pytorch_lowered_test {

using golden::golden_dir;
using nlohmann::json;

const auto kFile = golden_dir() / "pytorch/lowered.json";

std::string csv_of(const json& entry) {
  std::string text;
  for (const auto& row : entry["ranks"]) text += row.get<std::string>() + "\n";
  return text;
}

Order order_of(const json& entry) { return read_order_csv(csv_of(entry), "lowered.json"); }

std::string name_of(const json& entry) {
  return entry["pytorch"].get<std::string>() + " " + entry["schedule"].get<std::string>() +
         " p=" + entry["p"].dump() + " m=" + entry["m"].dump() + " v=" + entry["v"].dump();
}

/// F, I, W and B alone, as PyTorch's classes list them.
Order without_all_else(const Order& order) {
  Order kept = order;
  for (auto& row : kept.ranks) {
    std::erase_if(row, [](const Cell& cell) { return !is_compute(cell.action.kind); });
  }
  return kept;
}

TEST(PytorchLists, AreReadAndWrittenBack) {
  PIPEWRIGHT_NEEDS_GOLDEN(kFile);
  int waits = 0;
  for (const json& entry : json::parse(golden::text_of(kFile))) {
    SCOPED_TRACE(name_of(entry) + " " + entry["options"].dump());
    const Order order = order_of(entry);
    EXPECT_EQ(problems_of(order), std::vector<std::string>{});
    if (entry["options"] == "compute_only") continue;
    EXPECT_EQ(write_order_csv(order), csv_of(entry));
    waits += csv_of(entry).find("WAIT_SEND_F") != std::string::npos;
  }
  EXPECT_GT(waits, 0);
}

TEST(PytorchLists, ExportedActionsAreItsOwnOfBothReleases) {
  PIPEWRIGHT_NEEDS_GOLDEN(kFile);
  const json lists = json::parse(golden::text_of(kFile));
  std::map<std::string, Order> computations;
  for (const json& entry : lists) {
    if (entry["options"] == "compute_only") computations.emplace(name_of(entry), order_of(entry));
  }
  std::map<std::string, int> compared;
  for (const json& entry : lists) {
    if (entry["options"] != json::object()) continue;
    const std::string name = name_of(entry);
    SCOPED_TRACE(name);
    const auto release =
        planner::torch_release(entry["pytorch"].get<std::string>().substr(0, 4)).value();
    const auto listed = computations.find(name);
    const Order order =
        listed != computations.end() ? listed->second : without_all_else(order_of(entry));
    EXPECT_EQ(write_order_csv(planner::torch_actions(order, release)), csv_of(entry));
    ++compared[entry["pytorch"]];
  }
  EXPECT_EQ(compared, (std::map<std::string, int>{{"2.13.0", 51}, {"2.15.0", 51}}));
}

/// "47", "13 ok, 34 deadlock": how many lists fare how.
std::string text_of(const std::map<std::string, int>& counts) {
  std::string text;
  for (const char* verdict : {"ok", "mismatch", "deadlock", "invalid"}) {
    const auto found = counts.find(verdict);
    if (found == counts.end()) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(found->second) + " " + verdict;
  }
  return text;
}

std::string verdict_of(const Order& order, const CommPolicy& policy) {
  if (!problems_of(order).empty()) return "invalid";
  return std::string(to_string(sim::check(lower(order, policy), {}).verdict));
}

/// A table: a row for each group of lists, a column for each preset; presets of one policy share
/// theirs.
std::string table_of(const json& lists, bool by_schedule) {
  std::vector<std::pair<std::string, CommPolicy>> columns;
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    const auto same = std::find_if(columns.begin(), columns.end(),
                                   [&](const auto& c) { return c.second == preset.policy; });
    if (same == columns.end()) {
      columns.emplace_back(preset.name, preset.policy);
    } else {
      same->first += ", " + std::string(preset.name);
    }
  }
  std::map<std::string, std::vector<std::map<std::string, int>>> rows;
  for (const json& entry : lists) {
    const bool deferred =
        entry["options"].is_object() && entry["options"].contains("defer_pp_recv");
    if (by_schedule && !deferred) continue;
    const std::string options =
        entry["options"].is_string() ? "computations alone" : "`" + entry["options"].dump() + "`";
    const std::string key = entry["pytorch"].get<std::string>() + " | " + options +
                            (by_schedule ? " | " + entry["schedule"].get<std::string>() : "");
    auto& counts = rows[key];
    counts.resize(columns.size());
    const Order order = order_of(entry);
    for (std::size_t c = 0; c < columns.size(); ++c)
      ++counts[c][verdict_of(order, columns[c].second)];
  }
  std::string text = std::string("| PyTorch | options |") + (by_schedule ? " schedule |" : "");
  std::string line = by_schedule ? "|---|---|---|" : "|---|---|";
  for (const auto& [name, policy] : columns) {
    text += " " + name + " |";
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const auto& [key, counts] : rows) {
    text += "| " + key + " |";
    for (const auto& count : counts) text += " " + text_of(count) + " |";
    text += "\n";
  }
  return text;
}

/// The page with the table in place of the one that stands behind the marker.
std::string with_table(std::string page, const std::string& marker, const std::string& table) {
  const std::size_t at = page.find(marker + "\n");
  if (at == std::string::npos) return page;
  const std::size_t begin = at + marker.size() + 1;
  const std::size_t end = page.find("\n\n", begin);
  return page.replace(begin, end == std::string::npos ? end : end + 1 - begin, table);
}

/// PIPEWRIGHT_WRITE_LISTS=1 writes the tables into the page.
TEST(PytorchLists, FareUnderEveryPresetAsThePageSays) {
  PIPEWRIGHT_NEEDS_GOLDEN(kFile);
  const json lists = json::parse(golden::text_of(kFile));
  const std::string path = PIPEWRIGHT_SOURCE_DIR "/docs/pytorch-lists.md";
  const std::string page = golden::text_of(path);
  const std::string fresh = with_table(with_table(page, "<!-- all -->", table_of(lists, false)),
                                       "<!-- deferred -->", table_of(lists, true));
  if (std::getenv("PIPEWRIGHT_WRITE_LISTS") != nullptr) {
    std::ofstream(path) << fresh;
    return;
  }
  ASSERT_NE(page.find("<!-- all -->\n| PyTorch |"), std::string::npos);
  ASSERT_NE(page.find("<!-- deferred -->\n| PyTorch |"), std::string::npos);
  EXPECT_EQ(page, fresh) << "write the tables anew: PIPEWRIGHT_WRITE_LISTS=1, and this test";
}

}  // namespace pytorch_lowered_test
}  // namespace pipewright
