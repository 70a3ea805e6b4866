#include "core/costs.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "core/error.hpp"
#include "core/suggest.hpp"

namespace pipewright {
namespace {

/// "F=1,I=2" -> its keys and values, each key one of `known` (case ignored) and at most once.
std::map<std::string, std::string, std::less<>> read_pairs(
    std::string_view text, std::string_view flag, const std::vector<std::string_view>& known) {
  std::map<std::string, std::string, std::less<>> pairs;
  const auto fail = [&](const std::string& message) -> void {
    throw InputError(std::string(flag) + ": " + message);
  };
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      fail("expected KEY=VALUE, found \"" + std::string(item) + "\"");
    const std::string_view key = item.substr(0, equals);
    std::string_view canonical;
    for (const auto name : known) {
      const auto same = [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) ==
               std::tolower(static_cast<unsigned char>(b));
      };
      if (std::equal(key.begin(), key.end(), name.begin(), name.end(), same)) canonical = name;
    }
    if (canonical.empty())
      fail("unknown key \"" + std::string(key) + "\"" + did_you_mean(key, known));
    if (!pairs.emplace(std::string(canonical), std::string(item.substr(equals + 1))).second) {
      fail(std::string(canonical) + " is given twice");
    }
  }
  return pairs;
}

}  // namespace

CostTable CostTable::uniform(int stages, StageCosts each, Nanoseconds comm) {
  CostTable table;
  table.stages.assign(static_cast<std::size_t>(stages), each);
  table.every_route.latency = comm;
  return table;
}

bool CostTable::has_shared_links() const {
  for (const Link& link : links) {
    if (link.sharing != Sharing::None) return true;
  }
  return false;
}

const RouteCosts& CostTable::route(RankId source_rank, RankId destination, int ranks) const {
  if (route_of_edge.empty() || source_rank.value < 0 || destination.value < 0) return every_route;
  return route_of_edge[static_cast<std::size_t>(source_rank.value) *
                           static_cast<std::size_t>(ranks) +
                       static_cast<std::size_t>(destination.value)];
}

Bytes CostTable::message_bytes(const Route& route) const {
  // A gradient made by stage s crosses the boundary between s-1 and s.
  const bool forward = route.send_kind == ActionKind::SendF;
  const auto& sizes = forward ? activation_bytes : gradient_bytes;
  const int boundary = forward ? route.stage.value : route.stage.value - 1;
  if (boundary < 0 || boundary >= static_cast<int>(sizes.size())) return Bytes(0);
  return sizes[static_cast<std::size_t>(boundary)];
}

std::vector<std::int64_t> CostTable::message_bytes(const Program& program) const {
  std::vector<std::int64_t> bytes;
  bytes.reserve(program.routes.size());
  for (const Route& route : program.routes) bytes.push_back(message_bytes(route).value);
  return bytes;
}

Nanoseconds CostTable::transfer_time(const Route& r, int ranks) const {
  const RouteCosts& way = route(r.source, r.destination, ranks);
  if (way.bytes_per_second <= 0) return way.latency;
  const double moving = static_cast<double>(message_bytes(r).value) / way.bytes_per_second * 1e9;
  // The epsilon keeps an exact quotient from being rounded up by its last bit.
  return way.latency + Nanoseconds(static_cast<std::int64_t>(std::ceil(moving - 1e-6)));
}

Nanoseconds CostTable::compute_time(const Action& action, const Action* partner) const {
  if (partner != nullptr) {
    return overlapped_pair.value > 0 ? overlapped_pair
                                     : compute_time(action) + compute_time(*partner);
  }
  if (static_cast<std::size_t>(action.stage.value) >= stages.size()) return Nanoseconds(0);
  const StageCosts& stage = stages[static_cast<std::size_t>(action.stage.value)];
  switch (action.kind) {
    case ActionKind::F:
      return stage.f;
    case ActionKind::I:
      return stage.i;
    case ActionKind::W:
      return stage.w;
    case ActionKind::B:
      return stage.b;
    default:
      return Nanoseconds(0);
  }
}

Nanoseconds CostTable::update_time(const Placement& placement, RankId rank) const {
  Nanoseconds sum;
  for (const StageId stage : placement.stages_of(rank)) {
    if (static_cast<std::size_t>(stage.value) < stages.size())
      sum += stages[static_cast<std::size_t>(stage.value)].opt;
  }
  return sum;
}

Nanoseconds CostTable::duration(const Program& program, InstructionId id) const {
  if (is_transfer(program.code[id].kind)) return Nanoseconds(0);
  if (program.code[id].kind == ActionKind::Opt)
    return update_time(program.placement, program.rank_of(id));
  const Cell cell = program.cell(id);
  return compute_time(cell.action, cell.partner ? &*cell.partner : nullptr);
}

CostTable parse_costs(std::string_view text, int stages) {
  const auto pairs = read_pairs(text, "--cost", {"F", "I", "W", "B", "FB", "OPT", "comm"});
  const auto value = [&](std::string_view key) -> std::optional<Nanoseconds> {
    const auto found = pairs.find(key);
    if (found == pairs.end()) return std::nullopt;
    return parse_duration(found->second, "--cost " + found->first);
  };
  StageCosts each;
  const auto b = value("B");
  each.f = value("F").value_or(Nanoseconds(0));
  // Only B said: its two parts are taken to be halves.
  const bool halves = b && !value("I") && !value("W");
  each.i = value("I").value_or(halves ? Nanoseconds(b->value - b->value / 2) : Nanoseconds(0));
  each.w = value("W").value_or(halves ? Nanoseconds(b->value / 2) : Nanoseconds(0));
  each.b = b.value_or(each.i + each.w);
  each.opt = value("OPT").value_or(Nanoseconds(0));
  CostTable table = CostTable::uniform(stages, each, value("comm").value_or(Nanoseconds(0)));
  table.overlapped_pair = value("FB").value_or(Nanoseconds(0));
  return table;
}

Bytes parse_memory(std::string_view text, CostTable& table) {
  const auto pairs = read_pairs(text, "--mem", {"F", "I", "W", "constant", "limit"});
  const auto value = [&](std::string_view key) -> std::optional<Bytes> {
    const auto found = pairs.find(key);
    if (found == pairs.end()) return std::nullopt;
    std::string_view amount = found->second;
    const bool negative = !amount.empty() && amount.front() == '-';
    if (negative) amount.remove_prefix(1);
    const Bytes bytes = parse_bytes(amount, "--mem " + found->first);
    return negative ? Bytes(-bytes.value) : bytes;
  };
  StageMemory each;
  each.f = value("F").value_or(Bytes(0));
  each.i = value("I").value_or(Bytes(0));
  // What F took and I did not give back goes at W.
  each.w = value("W").value_or(Bytes(-each.f.value - each.i.value));
  each.constant = value("constant").value_or(Bytes(0));
  table.memory.assign(table.stages.size(), each);
  return value("limit").value_or(Bytes(0));
}

}  // namespace pipewright
