#include "core/order/order.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/order/call_faults.hpp"
#include "core/order/cells.hpp"
#include "core/order/csv_lines.hpp"
#include "core/order/problems.hpp"

namespace pipewright {
namespace {

constexpr RankId kNoRank(-1);

[[noreturn]] void fail_at_cell(std::string_view line, const std::string& file, int row, int cell,
                               std::size_t column, const std::string& expected) {
  // The arrow stays within a narrow terminal however long the row is.
  constexpr std::size_t kBefore = 30, kShown = 64;
  const std::size_t from = column > kBefore ? column - kBefore : 0;
  const std::string shown = (from > 0 ? "…" : "") + std::string(line.substr(from, kShown));
  throw InputError(file, "row " + std::to_string(row) + ", cell " + std::to_string(cell),
                   expected + "\n  " + shown + "\n  " +
                       std::string(column - from + (from > 0 ? 1 : 0), ' ') + "^");
}

std::vector<Cell> read_row(std::string_view line, const std::string& file, int row,
                           CallTable& calls) {
  std::vector<Cell> cells;
  int number = 0;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    const std::string_view text = line.substr(begin, end - begin);
    ++number;
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) {
      cells.push_back({{.kind = ActionKind::Idle, .stage = {}, .micro_batch = {}}, std::nullopt});
    } else {
      const auto written = parse_cells(text, calls);
      if (written.empty()) {
        fail_at_cell(line, file, row, number, begin + first,
                     "expected " + std::string(expected_cell()));
      }
      cells.insert(cells.end(), written.begin(), written.end());
    }
    begin = end + 1;
  }
  while (!cells.empty() && cells.back().action.kind == ActionKind::Idle) cells.pop_back();
  return cells;
}

template <class Visit>
void for_each_action(const Order& order, Visit visit) {
  for (int r = 0; r < order.rank_count(); ++r) {
    for (const Cell& cell : order.ranks[static_cast<std::size_t>(r)]) {
      visit(RankId(r), cell.action);
      if (cell.partner) visit(RankId(r), *cell.partner);
    }
  }
}

/// A stage lives where it computes; where no row computes it (a fragment), in the first row that
/// names it.
std::vector<RankId> homes_of(const Order& order, int stages) {
  std::vector<RankId> homes(static_cast<std::size_t>(stages), kNoRank);
  const auto home = [&](const Action& a) -> RankId& {
    return homes[static_cast<std::size_t>(a.stage.value)];
  };
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_compute(a.kind)) home(a) = rank;
  });
  for_each_action(order, [&](RankId rank, const Action& a) {
    const bool of_a_stage = has_stage(a.kind);
    if (of_a_stage && home(a) == kNoRank) home(a) = rank;
  });
  return homes;
}

/// The same for each micro-batch: the row that computes it, else the row of its transfer ends, else
/// the stage's.
std::vector<std::vector<RankId>> homes_by_micro_batch(const Order& order,
                                                      const std::vector<RankId>& homes,
                                                      int micro_batches) {
  std::vector<std::vector<RankId>> table(
      homes.size(), std::vector<RankId>(static_cast<std::size_t>(micro_batches), kNoRank));
  const auto home = [&](const Action& a) -> RankId& {
    return table[static_cast<std::size_t>(a.stage.value)]
                [static_cast<std::size_t>(a.micro_batch.value)];
  };
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_compute(a.kind)) home(a) = rank;
  });
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_pipeline_transfer(a.kind) && home(a) == kNoRank) home(a) = rank;
  });
  for (std::size_t s = 0; s < table.size(); ++s) {
    std::replace(table[s].begin(), table[s].end(), kNoRank, homes[s]);
  }
  return table;
}

}  // namespace

int peer_stage(const Action& a) {
  return a.stage.value + (a.kind == ActionKind::SendF || a.kind == ActionKind::RecvB ? 1 : -1);
}

OrderExtent extent_of(const Order& order) {
  OrderExtent extent;
  for_each_action(order, [&](RankId, const Action& a) {
    if (!has_stage(a.kind)) return;
    extent.stages = std::max(extent.stages, a.stage.value + 1);
    if (is_pipeline_transfer(a.kind)) extent.stages = std::max(extent.stages, peer_stage(a) + 1);
    if (has_micro_batch(a.kind)) {
      extent.micro_batches = std::max(extent.micro_batches, a.micro_batch.value + 1);
      ++extent.actions;
    }
  });
  return extent;
}

std::string excess_of(const OrderExtent& extent) {
  constexpr int kMostStages = 65535;
  constexpr std::int64_t kMostPairs = std::int64_t{1} << 28;
  // Tables have a place for each pair. A fragment names few of them, an order all.
  constexpr std::int64_t kFewPairs = std::int64_t{1} << 20, kMostPairsAnAction = 64;
  const std::int64_t pairs = std::int64_t{extent.stages} * std::max(1, extent.micro_batches);
  const std::int64_t most =
      std::min(kMostPairs, std::max(kFewPairs, kMostPairsAnAction * extent.actions));
  if (extent.stages <= kMostStages && extent.micro_batches <= kMostMicroBatchesOfOrder &&
      pairs <= most)
    return "";
  return "too large: " + std::to_string(extent.stages) + " stages and " +
         std::to_string(extent.micro_batches) + " micro-batches are named, and " +
         std::to_string(extent.actions) + " actions stand there; check for a mistyped number";
}

Placement placement_of_rows(const Order& order, int stages, int micro_batches) {
  auto homes = homes_of(order, stages);
  bool elsewhere = false;
  for_each_action(order, [&](RankId rank, const Action& a) {
    elsewhere |= has_micro_batch(a.kind) && homes[static_cast<std::size_t>(a.stage.value)] != rank;
  });
  if (elsewhere) {
    auto table = homes_by_micro_batch(order, homes, micro_batches);
    for (std::size_t s = 0; s < table.size(); ++s) {
      const auto moved = [&](RankId rank) { return rank != homes[s]; };
      if (std::any_of(table[s].begin(), table[s].end(), moved)) {
        return Placement::explicit_micro_batches(std::move(table), order.rank_count());
      }
    }
  }
  return Placement::explicit_stages(std::move(homes), order.rank_count());
}

bool Order::has_transfers() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(), [](const Cell& c) {
      return is_transfer(c.action.kind) || is_wait_for_send(c.action.kind);
    });
  });
}

Order read_order_csv(std::string_view text, const std::string& file) {
  Order order;
  CsvLines lines = split_csv(text, file);
  order.fragment = lines.fragment;
  CallTable calls;
  for (const CsvRow& row : lines.rows)
    order.ranks.push_back(read_row(row.text, file, row.number, calls));
  order.calls = calls.take();
  if (order.ranks.empty()) {
    throw InputError(file, "", "expected one row of actions for each rank, found none");
  }
  const OrderExtent extent = extent_of(order);
  const std::string excess = excess_of(extent);
  if (!excess.empty()) throw InputError(file, "", excess);
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_pipeline_transfer(a.kind) && peer_stage(a) < 0) {
      throw InputError(file, "rank " + std::to_string(rank.value),
                       to_string(a) + " has no stage at its other end: stage 0 is the first");
    }
  });
  for (Group& group : lines.groups) {
    const std::string fault = settle_group(group, order.groups, order.rank_count());
    if (!fault.empty()) throw InputError(file, "", fault);
    order.groups.push_back(std::move(group));
  }
  order.parts = std::move(lines.parts);
  order.mesh = std::move(lines.mesh);
  order.devices = std::move(lines.devices);
  order.sharding = lines.sharding;
  const std::string of_parts = part_fault(order);
  if (!of_parts.empty()) throw InputError(file, "", of_parts);
  if (const auto fault = call_fault(order))
    throw InputError(file, place_text(fault->rank, fault->cell), fault->sentence);
  order.micro_batches = std::max(1, extent.micro_batches);
  order.placement = placement_of_rows(order, std::max(1, extent.stages), order.micro_batches);
  return order;
}

std::string write_order_csv(const Order& order) {
  std::string text = csv_head({.fragment = order.fragment,
                               .groups = order.groups,
                               .parts = order.parts,
                               .mesh = order.mesh,
                               .devices = order.devices,
                               .sharding = order.sharding,
                               .rows = {}});
  for (const std::span<const Cell> row : order.ranks) {
    for (std::size_t begin = 0; begin < row.size();) {
      const std::size_t end = written_end(row, begin);
      if (begin > 0) text += ',';
      text += to_string(row.subspan(begin, end - begin), order.calls);
      begin = end;
    }
    text += '\n';
  }
  return text;
}

}  // namespace pipewright
