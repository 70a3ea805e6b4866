// What a collective takes as libraries such as NCCL do it: each way to do it has a price, and the
// least of them counts (docs/semantics.md §5, decision 30). Plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.hpp"
#include "core/order/action.hpp"
#include "core/program/program.hpp"

namespace pipewright {

enum class CollectiveAlgorithm : std::uint8_t { Ring, Tree, Hierarchical, Pairwise };
enum class CollectiveProtocol : std::uint8_t { LowLatency, Bulk };
/// "ring", "low-latency", …
std::string_view to_string(CollectiveAlgorithm algorithm);
std::string_view to_string(CollectiveProtocol protocol);

/// Of one kind of machine. All times in nanoseconds.
struct CollectiveModel {
  double launch_ns = 0;  // of every call
  double step_ns = 0;    // from one member to the next, inside a node
  /// Low-latency: for each byte of a member's part, an n-th of the bytes; a library takes more
  /// channels the larger the part is.
  double part_ns_per_byte = 0;
  double bulk_ns = 0;           // bulk: with all channels, however large the part
  double bytes_per_second = 0;  // out of a member, inside a node; more than 0
  /// Between nodes: a step, and what the devices of a node send together. 0 bytes a second: not
  /// known, to be taken from the cluster's ports.
  double across_step_ns = 0, across_bytes_per_second = 0;
  std::string source;  // where the numbers come from

  bool operator==(const CollectiveModel&) const = default;
};

/// How the members of a collective lie.
struct CollectiveGroup {
  int members = 1;
  int nodes = 1;         // that hold any
  int most_on_node = 1;  // members of the fullest node
};

struct CollectivePrice {
  Nanoseconds time;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Ring;
  CollectiveProtocol protocol = CollectiveProtocol::LowLatency;
};

/// The cheapest way. `kind` is ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST or
/// RING_SEND; `bytes` as section 5 of semantics.md has b. One member: no time. Between nodes the
/// model's across_bytes_per_second must not be 0.
CollectivePrice price_of(const CollectiveModel& model, ActionKind kind,
                         const CollectiveGroup& group, std::int64_t bytes);

/// Whether prices of this kind have been compared with measurements: all-reduces inside a node.
bool is_proven(ActionKind kind, const CollectiveGroup& group);

/// The model with the devices on which ranks sit: of a rank that stands for several the first.
struct CollectivePrices {
  CollectiveModel model;
  std::vector<int> device_of_rank;
  int devices_per_node = 1;
};

/// The price of moving so many bytes. Every member's rank has a device.
Nanoseconds priced_time(const CollectivePrices& prices, const Collective& collective,
                        std::int64_t bytes);
/// What a library does for the kind: REDUCE_GRAD of a sharded stage is a REDUCE_SCATTER.
ActionKind library_kind(const Collective& collective);

}  // namespace pipewright
