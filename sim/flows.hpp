// Messages and collectives on links that share max-min (docs/semantics.md §5, decision 72): what
// each moves over which links, and when it ends as others come and go.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/costs/factor.hpp"
#include "core/program/program.hpp"
#include "sim/max_min.hpp"

namespace pipewright::sim {

/// First some time that nothing shares, then bytes.
struct FlowPhase {
  std::int64_t fixed_ns = 0;
  double bytes = 0;              // of each stream
  double most_bytes_per_ns = 0;  // 0: bytes take no time
  std::vector<LinkUse> uses;
};

/// Of a message; `times` multiplies its latency and its bytes.
FlowPhase message_phase(const CostTable& costs, const RouteCosts& way, std::int64_t bytes,
                        Factor times);

/// Of a collective that takes so long where nothing else moves and its own streams do not meet: its
/// ring between the members, or all pairs for an ALL_TO_ALL. No link: its time stays as it is.
std::vector<FlowPhase> collective_phases(const CostTable& costs, const Collective& collective,
                                         int ranks, std::int64_t whole_ns);

/// What happens on the links. Events are given to the caller's queue and come back through
/// on_event(); one whose stamp is out of date is ignored.
class Flows {
 public:
  struct Event {
    std::int64_t time;
    std::uint32_t slot, stamp;
  };

  /// By link of the table.
  explicit Flows(const CostTable& costs);

  /// The phases, one after the other; at least one. Named by the slot until it is over.
  std::uint32_t begin(std::vector<FlowPhase> phases, std::int64_t now, std::vector<Event>& events);
  /// To be called at the end of every instant in which something began or an event was handled.
  void settle(std::int64_t now, std::vector<Event>& events);
  /// True if it is over; its slot is then used again.
  bool on_event(const Event& event, std::vector<Event>& events);

 private:
  struct Moving {
    std::vector<FlowPhase> phases;
    std::size_t phase = 0;
    std::uint32_t stamp = 0;
    bool is_sharing = false;
    double bytes_left = 0, bytes_per_ns = 0;
    std::int64_t since = 0;
  };

  void begin_phase(std::uint32_t slot, std::int64_t now, std::vector<Event>& events);

  MaxMin shares_;
  bool has_changed_ = false;
  std::vector<Moving> moving_;
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace pipewright::sim
