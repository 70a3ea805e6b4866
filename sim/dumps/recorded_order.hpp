// Dumps as an order of calls (docs/semantics.md §3.3), which `check` can judge.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "sim/dumps/dumped_job.hpp"

namespace pipewright::sim {

/// In which calls of a rank a library keeps the order, from the least that any set-up does.
enum class Guarantee : std::uint8_t {
  ByCommunicator,  // those of a group; of NCCL also those of a pair of ranks that send singly
  ByGroup,         // NCCL: those of a group, single transfers too
  ByDevice,        // NCCL: all of them; several communicators on a device are promised nothing
};
/// "one communicator for all calls of a group (…)".
std::string_view to_string(Guarantee guarantee);
/// What calls of this kind of job may run under, the least first.
std::vector<Guarantee> guarantees_of(const DumpedJob& job);
CommPolicy policy_of(Guarantee guarantee);

/// The calls of each rank that are still to be explained, as positions in its dump: those that have
/// not ended, or not everywhere. What all members have completed has ended, and so has what a rank
/// no longer has in its dump while it has later ones of the group.
using OpenCalls = std::vector<std::vector<std::size_t>>;
OpenCalls open_calls(const DumpedJob& job);

struct RecordedOrder {
  Order order;
  /// By rank and cell, the position in the rank's dump.
  std::vector<std::vector<std::size_t>> origin;
  /// Calls that the others wait for and the rank has not made, by rank.
  std::vector<std::vector<Call>> owed;
};
RecordedOrder recorded_order(const DumpedJob& job, const OpenCalls& open, Guarantee guarantee);

/// The order in which each rank goes on to what it owes when all that it has called has ended.
Order continued_order(const RecordedOrder& recorded);

}  // namespace pipewright::sim
