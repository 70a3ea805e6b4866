// Times of single actions, where an action does not take what its stage says: sequences of unequal
// length, stragglers, slow nodes (docs/semantics.md §5).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/units.hpp"
#include "core/costs/costs.hpp"
#include "core/order/action.hpp"
#include "core/order/order.hpp"

namespace pipewright {

/// Of one replica of the pipeline: its rank, and an action with its micro-batch, both counted from
/// 0 in every replica.
struct ActionTime {
  int replica = 0;
  RankId rank;
  Cell action;  // F, I, W, B, an overlapped pair of these, or OPT
  Nanoseconds time;
  int line = 0;  // of the file that it was read from, if that is a CSV
};

/// How many ranks and micro-batches a replica has, and how many replicas there are.
struct ReplicaShape {
  int replicas = 1, ranks = 1, micro_batches = 1;
};

/// The times by the numbers of a Program, in which replicas come one after the other. Immutable.
class ActionTimes {
 public:
  /// `rows` are without fault (fault_of()).
  ActionTimes(std::vector<ActionTime> rows, const ReplicaShape& shape);

  const std::vector<ActionTime>& rows() const { return rows_; }
  const ReplicaShape& shape() const { return shape_; }

  /// Of a computation, or of a pair; nullopt: its stage says it.
  std::optional<Nanoseconds> of(const Action& action, const Action* partner = nullptr) const;
  /// Of all updates of a rank.
  std::optional<Nanoseconds> of_update(RankId rank) const;
  bool names_updates() const;
  /// The same of a Program in which each rank is written out as so many devices
  /// (core/order/devices.hpp).
  ActionTimes on_devices(int devices_of_rank) const;

 private:
  using Key = std::array<std::uint64_t, 2>;
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  std::uint64_t key_of(const Action& action) const;
  std::optional<Nanoseconds> find(const Key& key) const;

  std::vector<ActionTime> rows_;
  ReplicaShape shape_;
  int devices_of_rank_ = 1;
  std::unordered_map<Key, Nanoseconds, Hash> times_;
};

/// A row that says nothing about this order, and why.
struct ActionTimeFault {
  std::size_t row = 0;
  std::string why;
};
/// `order` is that of one replica. An update belongs to every rank, whether the order holds it or
/// lowering adds it.
std::optional<ActionTimeFault> fault_of(const std::vector<ActionTime>& rows, const Order& order,
                                        const ReplicaShape& shape);

/// The rows whose actions this order of one replica has, and updates.
std::vector<ActionTime> rows_of(const std::vector<ActionTime>& rows, const Order& order);

/// Whether a table names a time for updates, of stages or of single ranks.
bool times_updates(const CostTable& costs);

/// What has a time of its own, in words; and its text as a cell, nullopt where it has none.
inline constexpr std::string_view kTimedActions =
    "a computation, such as 0F3, 1I3, 1W3, 2B0 or (0F7;2B3)OVERLAP_F_B, or OPT";
std::optional<Cell> parse_timed_action(std::string_view text);

/// Reads "replica,rank,action,ns", the head and a row for each action: "0,3,2B7,1500000",
/// "1,0,OPT,90000". Throws InputError with file and line.
std::vector<ActionTime> read_action_times_csv(std::string_view text, const std::string& file);
std::string write_action_times_csv(const std::vector<ActionTime>& rows);

}  // namespace pipewright
