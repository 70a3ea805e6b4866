// Max-min fair shares of links (docs/semantics.md §5, decision 72): every flow's rate grows until a
// link of it is full, or the flow's own most is reached; the others' go on growing.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace pipewright::sim {

/// A link, and how many streams of a flow go over it: each counts as one in the link's shares.
struct LinkUse {
  std::uint32_t link = 0;
  std::uint32_t streams = 1;
};

/// Flows are named by slots, small numbers that are used again.
class MaxMin {
 public:
  using Slot = std::uint32_t;

  /// Rates of links, in any unit, more than 0.
  explicit MaxMin(std::vector<double> capacities);

  /// All streams of a flow have one rate, `most` at most (infinite, where a link is used). `uses`
  /// must live until the flow is taken out, and names no link twice.
  void put_in(Slot slot, std::span<const LinkUse> uses, double most);
  void take_out(Slot slot);
  /// Rates anew of all flows that what was put in and taken out since concerns; their slots.
  const std::vector<Slot>& share_again();
  /// Of each of the flow's streams.
  double rate(Slot slot) const { return flows_[slot].rate; }

 private:
  struct Flow {
    std::span<const LinkUse> uses = {};
    double most = 0, rate = 0;
    std::uint32_t seen = 0;
    bool is_set = false;
  };
  struct Link {
    double capacity = 0;
    double left = 0;            // for the flows whose rate is not set yet
    std::uint64_t streams = 0;  // of these
    std::uint32_t seen = 0;
    std::vector<Slot> flows;
  };

  void gather();
  void see(std::uint32_t link);
  void fill();
  void set(Flow& flow, double rate);
  double share_of(std::uint32_t link) const;

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> changed_;  // links
  std::vector<Slot> alone_;             // flows without a link, put in since
  std::vector<std::uint32_t> near_links_;
  std::vector<Slot> near_flows_;
  std::vector<std::pair<double, std::uint32_t>> by_share_;  // a heap, the least first
  std::uint32_t turn_ = 0;
};

}  // namespace pipewright::sim
