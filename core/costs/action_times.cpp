#include "core/costs/action_times.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace pipewright {
namespace {

constexpr std::uint64_t kNoPartner = ~std::uint64_t{0};

std::uint64_t bits_of(ActionKind kind, int stage, int micro_batch) {
  return (static_cast<std::uint64_t>(kind) << 56) | (static_cast<std::uint64_t>(stage) << 32) |
         static_cast<std::uint64_t>(micro_batch);
}

/// Without weight versions, which do not change what an action takes.
Cell without_versions(Cell cell) {
  cell.action.version = -1;
  if (cell.partner) cell.partner->version = -1;
  return cell;
}

std::string range_text(int count) { return "0 to " + std::to_string(count - 1); }

/// The computations of a rank, by their text.
std::set<std::string> computations_of(const std::vector<Cell>& row) {
  std::set<std::string> found;
  for (const Cell& cell : row) {
    if (is_compute(cell.action.kind)) found.insert(to_string(without_versions(cell)));
  }
  return found;
}

}  // namespace

ActionTimes::ActionTimes(std::vector<ActionTime> rows, const ReplicaShape& shape)
    : rows_(std::move(rows)), shape_(shape) {
  for (const ActionTime& row : rows_) {
    const auto key = [&](Action action) {
      if (action.kind == ActionKind::Opt)
        return bits_of(action.kind, 0, row.replica * shape_.ranks + row.rank.value);
      action.micro_batch.value += row.replica * shape_.micro_batches;
      return bits_of(action.kind, action.stage.value, action.micro_batch.value);
    };
    times_.emplace(
        Key{key(row.action.action), row.action.partner ? key(*row.action.partner) : kNoPartner},
        row.time);
  }
}

std::size_t ActionTimes::Hash::operator()(const Key& key) const {
  return static_cast<std::size_t>((key[0] * 0x9E3779B97F4A7C15ULL) ^ (key[1] + (key[0] >> 29)));
}

/// Devices of a rank do the same for micro-batches with numbers of their own.
std::uint64_t ActionTimes::key_of(const Action& action) const {
  const int all = shape_.replicas * shape_.micro_batches;
  return bits_of(action.kind, action.stage.value, action.micro_batch.value % all);
}

std::optional<Nanoseconds> ActionTimes::find(const Key& key) const {
  const auto found = times_.find(key);
  if (found == times_.end()) return std::nullopt;
  return found->second;
}

std::optional<Nanoseconds> ActionTimes::of(const Action& action, const Action* partner) const {
  return find({key_of(action), partner != nullptr ? key_of(*partner) : kNoPartner});
}

std::optional<Nanoseconds> ActionTimes::of_update(RankId rank) const {
  return find({bits_of(ActionKind::Opt, 0, rank.value / devices_of_rank_), kNoPartner});
}

bool ActionTimes::names_updates() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const ActionTime& row) {
    return row.action.action.kind == ActionKind::Opt;
  });
}

ActionTimes ActionTimes::on_devices(int devices_of_rank) const {
  ActionTimes result = *this;
  result.devices_of_rank_ *= devices_of_rank;
  return result;
}

std::optional<Cell> parse_timed_action(std::string_view text) {
  std::optional<Cell> cell = parse_cell(text);
  if (!cell) return std::nullopt;
  const bool updates = cell->action.kind == ActionKind::Opt && !cell->partner;
  return is_compute(cell->action.kind) || updates ? cell : std::nullopt;
}

std::optional<ActionTimeFault> fault_of(const std::vector<ActionTime>& rows, const Order& order,
                                        const ReplicaShape& shape) {
  std::vector<std::set<std::string>> computations;
  for (const auto& row : order.ranks) computations.push_back(computations_of(row));
  std::set<std::tuple<int, int, std::string>> seen;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const ActionTime& row = rows[k];
    const std::string action = to_string(without_versions(row.action));
    const auto fault = [&](const std::string& why) { return ActionTimeFault{k, why}; };
    if (row.replica >= shape.replicas)
      return fault("expected a replica from " + range_text(shape.replicas) + ", found " +
                   std::to_string(row.replica));
    if (row.rank.value >= shape.ranks)
      return fault("expected a rank from " + range_text(shape.ranks) + ", found " +
                   std::to_string(row.rank.value));
    if (row.action.action.kind != ActionKind::Opt &&
        computations[static_cast<std::size_t>(row.rank.value)].count(action) == 0)
      return fault("rank " + std::to_string(row.rank.value) + " has no action " + action);
    if (!seen.emplace(row.replica, row.rank.value, action).second)
      return fault("a second time for " + action + " on rank " + std::to_string(row.rank.value) +
                   " of replica " + std::to_string(row.replica));
  }
  return std::nullopt;
}

std::vector<ActionTime> rows_of(const std::vector<ActionTime>& rows, const Order& order) {
  std::vector<std::set<std::string>> computations;
  for (const auto& row : order.ranks) computations.push_back(computations_of(row));
  std::vector<ActionTime> kept;
  for (const ActionTime& row : rows) {
    const auto rank = static_cast<std::size_t>(row.rank.value);
    if (row.action.action.kind == ActionKind::Opt ||
        (rank < computations.size() &&
         computations[rank].count(to_string(without_versions(row.action))) > 0))
      kept.push_back(row);
  }
  return kept;
}

bool times_updates(const CostTable& costs) {
  return std::any_of(costs.stages.begin(), costs.stages.end(),
                     [](const StageCosts& each) { return each.opt.value > 0; }) ||
         (costs.actions != nullptr && costs.actions->names_updates());
}

}  // namespace pipewright
