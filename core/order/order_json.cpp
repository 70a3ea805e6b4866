#include "core/order/order_json.hpp"

#include <algorithm>
#include <span>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"
#include "core/order/call_faults.hpp"
#include "core/order/call_json.hpp"
#include "core/order/cells.hpp"

namespace pipewright {
namespace {

constexpr int kMostOrderRanks = 65535;

std::vector<Cell> read_cells(const JsonCursor& value, CallTable& calls) {
  if (value.value().is_object()) return read_call_cells(value, calls);
  const std::string text = value.string();
  if (text.find_first_not_of(" \t") == std::string::npos) {
    return {{{.kind = ActionKind::Idle, .stage = {}, .micro_batch = {}}, std::nullopt}};
  }
  std::vector<Cell> cells = parse_cells(text, calls);
  if (cells.empty()) value.fail(std::string(expected_cell()));
  for (const Cell& cell : cells) {
    if (!is_pipeline_transfer(cell.action.kind) || peer_stage(cell.action) >= 0) continue;
    throw InputError(
        value.file(), value.pointer(),
        to_string(cell.action) + " has no stage at its other end: stage 0 is the first");
  }
  return cells;
}

void drop_idle_end(std::vector<Cell>& cells) {
  while (!cells.empty() && cells.back().action.kind == ActionKind::Idle) cells.pop_back();
}

void read_ranks(const JsonCursor& list, Order& order) {
  CallTable calls;
  for (const JsonCursor& rank : list.elements()) {
    std::vector<Cell>& cells = order.ranks.emplace_back();
    for (const JsonCursor& cell : rank.elements()) {
      const std::vector<Cell> written = read_cells(cell, calls);
      cells.insert(cells.end(), written.begin(), written.end());
    }
    drop_idle_end(cells);
  }
  order.calls = calls.take();
  if (order.ranks.empty() || order.rank_count() > kMostOrderRanks) {
    list.fail("1 to " + std::to_string(kMostOrderRanks) + " lists of actions, one for each rank");
  }
}

RankId read_rank(const JsonCursor& value, int ranks) {
  return RankId(read_count(value, 0, ranks - 1));
}

/// By stage and micro-batch; all lists as long as the first.
Placement read_replicas(const std::vector<JsonCursor>& stages, const Order& order) {
  std::vector<std::vector<RankId>> table;
  for (const JsonCursor& stage : stages) {
    auto& row = table.emplace_back();
    for (const JsonCursor& rank : stage.elements()) {
      row.push_back(read_rank(rank, order.rank_count()));
    }
    if (static_cast<int>(row.size()) != order.micro_batches) {
      stage.fail("a rank for each of the " + std::to_string(order.micro_batches) +
                 " micro-batches");
    }
  }
  return Placement::explicit_micro_batches(std::move(table), order.rank_count());
}

Placement read_placement(const JsonCursor& value, const OrderExtent& extent, Order& order) {
  const std::vector<JsonCursor> stages = value.elements();
  const int count = static_cast<int>(std::min<std::size_t>(stages.size(), kMostOrderRanks + 1));
  if (count < std::max(1, extent.stages)) {
    value.fail("a rank for each of the " + std::to_string(std::max(1, extent.stages)) +
               " stages that the actions name");
  }
  const bool replicas = stages.front().value().is_array();
  if (replicas) {
    const std::size_t columns = std::min<std::size_t>(stages.front().value().size(), 1U << 25);
    order.micro_batches = std::max(order.micro_batches, static_cast<int>(columns));
  }
  const std::string excess = excess_of({count, order.micro_batches, extent.actions});
  if (!excess.empty()) throw InputError(value.file(), value.pointer(), excess);
  if (replicas) return read_replicas(stages, order);
  std::vector<RankId> rank_of_stage;
  for (const JsonCursor& stage : stages) {
    rank_of_stage.push_back(read_rank(stage, order.rank_count()));
  }
  return Placement::explicit_stages(std::move(rank_of_stage), order.rank_count());
}

void read_groups(const JsonCursor& groups, Order& order) {
  for (const auto& [name, ranks] : groups.members()) {
    if (!is_call_name(name)) ranks.fail("a name without spaces and the signs of the text form");
    Group group{name, {}};
    for (const JsonCursor& rank : ranks.elements())
      group.ranks.push_back(read_rank(rank, order.rank_count()));
    const std::string fault = settle_group(group, order.groups, order.rank_count());
    if (!fault.empty()) throw InputError(ranks.file(), ranks.pointer(), fault);
    order.groups.push_back(std::move(group));
  }
}

void read_axes(const JsonCursor& axes, std::vector<MeshAxis>& into) {
  for (const auto& [name, devices] : axes.members()) {
    const std::string fault = add_axis(name, devices.integer(1, kMostDevices), into);
    if (!fault.empty()) throw InputError(devices.file(), devices.pointer(), fault);
  }
}

void read_sharding(const JsonCursor& fields, Sharding& sharding) {
  for (const auto& [name, value] : fields.members()) {
    const std::string fault = set_field(name, value.integer(1, kMostDevices), sharding);
    if (!fault.empty()) throw InputError(value.file(), value.pointer(), fault);
  }
}

/// The place of a cell in the document, in which a batch is one.
std::string pointer_of(const JsonCursor& list, const Order& order, RankId rank, std::size_t cell) {
  const std::span<const Cell> cells = order.ranks[static_cast<std::size_t>(rank.value)];
  std::size_t number = 0;
  for (std::size_t k = written_end(cells, 0); k <= cell; k = written_end(cells, k)) ++number;
  return list.pointer() + "/" + std::to_string(rank.value) + "/" + std::to_string(number);
}

void require_sound_calls(const JsonCursor& list, const Order& order) {
  if (const auto fault = call_fault(order)) {
    throw InputError(list.file(), pointer_of(list, order, fault->rank, fault->cell),
                     fault->sentence);
  }
}

/// Every action with a micro-batch stands on the rank that the document names for its stage.
void require_homes(const JsonCursor& list, const Order& order) {
  for (std::size_t r = 0; r < order.ranks.size(); ++r) {
    for (std::size_t i = 0; i < order.ranks[r].size(); ++i) {
      const Cell& cell = order.ranks[r][i];
      for (const Action* a : {&cell.action, cell.partner ? &*cell.partner : nullptr}) {
        if (a == nullptr || !has_micro_batch(a->kind)) continue;
        const RankId home = order.placement.rank_of(a->stage, a->micro_batch);
        if (home == RankId(static_cast<int>(r))) continue;
        throw InputError(list.file(), pointer_of(list, order, RankId(static_cast<int>(r)), i),
                         to_string(*a) + " stands on rank " + std::to_string(r) +
                             ", but rank_of_stage puts stage " + std::to_string(a->stage.value) +
                             " on rank " + std::to_string(home.value) + "; make the two agree");
      }
    }
  }
}

/// By stage, or by stage and micro-batch; null where some stage lives nowhere.
Json placement_json(const Order& order) {
  const bool replicas = order.placement.looks_at_micro_batch();
  Json stages = Json::array();
  for (int s = 0; s < order.stages(); ++s) {
    Json row = Json::array();
    for (int m = 0; m < (replicas ? order.micro_batches : 1); ++m) {
      const RankId rank = order.placement.rank_of(StageId(s), MicroBatchId(m));
      if (rank.value < 0) return nullptr;
      row.push_back(rank.value);
    }
    stages.push_back(replicas ? std::move(row) : row.front());
  }
  return stages;
}

}  // namespace

Order read_order_json(const JsonCursor& document) {
  require_schema(document, "order", 2);
  document.only({"schema", "ranks", "rank_of_stage", "messages", "fragment", "groups", "parts",
                 "mesh", "devices", "sharding"});
  Order order;
  if (const auto fragment = document.find("fragment")) order.fragment = fragment->boolean();
  const JsonCursor list = document.at("ranks");
  read_ranks(list, order);
  if (const auto groups = document.find("groups")) read_groups(*groups, order);
  if (const auto parts = document.find("parts")) order.parts = read_parts(*parts);
  if (const auto mesh = document.find("mesh")) read_axes(*mesh, order.mesh);
  if (const auto devices = document.find("devices")) read_axes(*devices, order.devices);
  if (const auto sharding = document.find("sharding")) read_sharding(*sharding, order.sharding);
  const std::string of_parts = part_fault(order);
  if (!of_parts.empty()) throw InputError(document.file(), document.pointer(), of_parts);
  require_sound_calls(list, order);
  const OrderExtent extent = extent_of(order);
  const std::string excess = excess_of(extent);
  if (!excess.empty()) throw InputError(list.file(), list.pointer(), excess);
  order.micro_batches = std::max(1, extent.micro_batches);
  if (const auto placement = document.find("rank_of_stage")) {
    order.placement = read_placement(*placement, extent, order);
    require_homes(list, order);
  } else {
    order.placement = placement_of_rows(order, std::max(1, extent.stages), order.micro_batches);
  }
  if (const auto messages = document.find("messages")) {
    order.messages = read_message_formats(*messages);
  }
  return order;
}

std::vector<ActionParts> read_parts(const JsonCursor& lists) {
  std::vector<ActionParts> all;
  for (const auto& [name, list] : lists.members()) {
    std::vector<std::string> texts;
    for (const JsonCursor& part : list.elements()) texts.push_back(part.string());
    const std::string fault = add_parts(name, texts, all);
    if (!fault.empty()) throw InputError(list.file(), list.pointer(), fault);
  }
  return all;
}

Json parts_json(const std::vector<ActionParts>& parts) {
  Json json = Json::object();
  for (const ActionParts& of : parts) {
    Json& texts = json[name_of(of)] = Json::array();
    for (const Part& part : of.parts) texts.push_back(to_string(part));
  }
  return json;
}

bool looks_like_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && (text[first] == '{' || text[first] == '[');
}

Order read_order(std::string_view text, const std::string& file) {
  if (!looks_like_json(text)) return read_order_csv(text, file);
  const Json document = parse_json(text, file);
  return read_order_json(JsonCursor(document, file));
}

Json rows_json(const Order& order) {
  Json rows = Json::array();
  for (const std::span<const Cell> cells : order.ranks) {
    Json row = Json::array();
    for (std::size_t begin = 0, end = 0; begin < cells.size(); begin = end) {
      end = written_end(cells, begin);
      row.push_back(to_string(cells.subspan(begin, end - begin), order.calls));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json to_json(const Order& order) {
  Json ranks = rows_json(order);
  for (Json& row : ranks) {
    while (!row.empty() && row.back() == "") row.erase(row.size() - 1);
  }
  Json document = {{"schema", "pipewright.order/1"}, {"ranks", std::move(ranks)}};
  Json placement = placement_json(order);
  if (!placement.is_null()) document["rank_of_stage"] = std::move(placement);
  if (order.fragment) document["fragment"] = true;
  const bool of_version_1 = order.calls.empty() && order.parts.empty() && order.mesh.empty() &&
                            order.devices.empty() && to_string(order.sharding).empty();
  if (!of_version_1) document["schema"] = "pipewright.order/2";
  if (!order.parts.empty()) document["parts"] = parts_json(order.parts);
  for (const MeshAxis& axis : order.mesh) document["mesh"][axis.name] = axis.devices;
  for (const MeshAxis& axis : order.devices) document["devices"][axis.name] = axis.devices;
  if (order.sharding.zero > 0) document["sharding"]["zero"] = order.sharding.zero;
  if (order.sharding.groups > 1) document["sharding"]["groups"] = order.sharding.groups;
  for (const Group& group : order.groups) {
    Json& members = document["groups"][group.name] = Json::array();
    for (const RankId rank : group.ranks) members.push_back(rank.value);
  }
  if (!order.messages.empty()) document["messages"] = to_json(order.messages);
  return document;
}

}  // namespace pipewright
