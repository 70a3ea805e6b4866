// How transfers share the cluster's links (docs/semantics.md §5): alone, one after the other, by
// equal shares of bandwidth, or max-min with what collectives move.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "sim/durations.hpp"
#include "sim/flows.hpp"

namespace pipewright::sim {

/// Bytes that a transfer moves in a nanosecond beside others on the links of its way: `users(l)` is
/// how many are under way on link l, itself among them.
template <class Users>
double share_per_ns(const RouteCosts& way, const std::vector<Link>& links, Users users) {
  double share = way.bytes_per_second;
  for (const std::uint32_t l : way.links) {
    if (links[l].sharing == Sharing::Fair)
      share = std::min(share, links[l].bytes_per_second / static_cast<double>(users(l)));
  }
  return share * 1e-9;
}

/// To the first whole nanosecond at which so many bytes have moved.
inline std::int64_t ns_to_move(double bytes, double bytes_per_ns) {
  return static_cast<std::int64_t>(std::ceil(bytes / bytes_per_ns - 1e-6));
}

/// A transfer is named by its SEND, a collective by its first member. Events are given to the
/// caller's queue and come back through on_event(); an event whose stamp is out of date is ignored,
/// so that a change of bandwidth needs no search in the queue.
class Links {
 public:
  struct Event {
    std::int64_t time;
    InstructionId send;
    std::uint32_t stamp;
  };

  Links(const Program& program, const CostTable& costs, const Durations& durations);

  /// The transfer may begin now.
  void request(InstructionId send, std::int64_t now, std::vector<Event>& events);
  /// The collective of this number begins now.
  void begin_collective(std::uint32_t index, std::int64_t now, std::vector<Event>& events);
  /// To be called when all requests of an instant have been made: begins what can begin.
  void settle(std::int64_t now, std::vector<Event>& events);
  /// True if the transfer or collective is over.
  bool on_event(const Event& event, std::vector<Event>& events);

 private:
  struct Waiting {
    std::int64_t since;
    RankId source, destination;
    InstructionId send;
    auto operator<=>(const Waiting&) const = default;
  };
  struct Moving {  // a transfer on links with fair sharing
    InstructionId send = kNoInstruction;
    std::uint32_t stamp = 0;
    bool in_latency = true;
    double bytes_left = 0, bytes_per_ns = 0;
    std::int64_t since = 0;
  };

  void begin_flow(InstructionId name, std::vector<FlowPhase> phases, std::int64_t now,
                  std::vector<Event>& events);
  /// Hands on what flows_ wants to be told.
  void give_events(std::vector<Event>& events);
  const RouteCosts& way(InstructionId send) const;
  bool begin_serial(const Waiting& waiting);
  void begin(InstructionId send, std::int64_t now, std::vector<Event>& events);
  void join(std::uint32_t slot, std::int64_t now, std::vector<Event>& events);
  void leave(std::uint32_t slot, std::int64_t now, std::vector<Event>& events);
  /// New shares for everything that moves on the links of `way`.
  void share_again(const RouteCosts& way, std::int64_t now, std::vector<Event>& events);
  void set_share(Moving& transfer, std::int64_t now, std::vector<Event>& events);

  const Program& program_;
  const CostTable& costs_;
  const Durations& durations_;
  bool shared_;
  std::vector<std::uint8_t> taken_;                // by link, for Sharing::Serial
  std::vector<Waiting> waiting_;                   // sorted
  std::vector<std::vector<std::uint32_t>> users_;  // by link, for Sharing::Fair: slots
  std::vector<Moving> moving_;                     // slots
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> slot_of_;  // by instruction; empty without shared links
  // Where links share max-min, in place of the rest:
  std::optional<Flows> flows_;
  std::vector<Flows::Event> of_flows_;
  std::vector<InstructionId> named_;  // by slot of flows_
};

}  // namespace pipewright::sim
