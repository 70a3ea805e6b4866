#include "sim/max_min.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace pipewright::sim {

MaxMin::MaxMin(std::vector<double> capacities) : links_(capacities.size()) {
  for (std::size_t l = 0; l < links_.size(); ++l) links_[l].capacity = capacities[l];
}

void MaxMin::put_in(Slot slot, std::span<const LinkUse> uses, double most) {
  if (slot >= flows_.size()) flows_.resize(slot + std::size_t{1});
  // Where a link never gives more, its own most says nothing.
  for (const LinkUse& use : uses) {
    if (links_[use.link].capacity / use.streams <= most)
      most = std::numeric_limits<double>::infinity();
  }
  flows_[slot] = {uses, most, 0, 0, false};
  for (const LinkUse& use : uses) {
    links_[use.link].flows.push_back(slot);
    changed_.push_back(use.link);
  }
  if (uses.empty()) alone_.push_back(slot);
}

void MaxMin::take_out(Slot slot) {
  for (const LinkUse& use : flows_[slot].uses) {
    auto& flows = links_[use.link].flows;
    *std::find(flows.begin(), flows.end(), slot) = flows.back();
    flows.pop_back();
    changed_.push_back(use.link);
  }
  std::erase(alone_, slot);
  flows_[slot] = {};
}

const std::vector<MaxMin::Slot>& MaxMin::share_again() {
  ++turn_;
  gather();
  fill();
  for (const Slot slot : alone_) {
    flows_[slot].rate = flows_[slot].most;
    near_flows_.push_back(slot);
  }
  alone_.clear();
  changed_.clear();
  return near_flows_;
}

/// The links and flows that the changed links hang together with.
void MaxMin::gather() {
  near_links_.clear();
  near_flows_.clear();
  for (const std::uint32_t link : changed_) see(link);
  for (std::size_t next = 0; next < near_links_.size(); ++next) {
    Link& link = links_[near_links_[next]];
    link.left = link.capacity;
    link.streams = 0;
    for (const Slot slot : link.flows) {
      Flow& flow = flows_[slot];
      if (flow.seen == turn_) continue;
      flow.seen = turn_;
      flow.is_set = false;
      near_flows_.push_back(slot);
      for (const LinkUse& use : flow.uses) see(use.link);
    }
  }
  for (const Slot slot : near_flows_) {
    for (const LinkUse& use : flows_[slot].uses) links_[use.link].streams += use.streams;
  }
}

void MaxMin::see(std::uint32_t link) {
  if (links_[link].seen == turn_) return;
  links_[link].seen = turn_;
  near_links_.push_back(link);
}

/// One level after the other: that of the link which is full first, or of the flow which reaches
/// its most first. Shares of the other links only grow by that, but for the last bits of a double:
/// so what stands in the heap is at most a link's share, and the first that is its share is least.
void MaxMin::fill() {
  std::vector<Slot> by_most = near_flows_;
  std::ranges::sort(by_most, {}, [this](Slot slot) { return flows_[slot].most; });
  std::size_t next_by_most = 0;
  by_share_.clear();
  for (const std::uint32_t link : near_links_) by_share_.push_back({share_of(link), link});
  std::ranges::make_heap(by_share_, std::greater{});
  double level = 0;
  while (!by_share_.empty()) {
    std::ranges::pop_heap(by_share_, std::greater{});
    const auto [then, fullest] = by_share_.back();
    by_share_.pop_back();
    if (links_[fullest].streams == 0) continue;
    const double share = share_of(fullest);
    while (next_by_most < by_most.size() && flows_[by_most[next_by_most]].is_set) ++next_by_most;
    const double first_most = next_by_most < by_most.size()
                                  ? flows_[by_most[next_by_most]].most
                                  : std::numeric_limits<double>::infinity();
    const bool is_first = share <= then;
    if (is_first && share < first_most) {
      level = std::max(level, share);
      for (const Slot slot : links_[fullest].flows) {
        if (!flows_[slot].is_set) set(flows_[slot], level);
      }
      continue;
    }
    by_share_.push_back({share, fullest});
    std::ranges::push_heap(by_share_, std::greater{});
    if (!is_first) continue;
    level = std::max(level, first_most);
    for (; next_by_most < by_most.size(); ++next_by_most) {
      Flow& flow = flows_[by_most[next_by_most]];
      if (flow.most > first_most) break;
      if (!flow.is_set) set(flow, first_most);
    }
  }
}

double MaxMin::share_of(std::uint32_t link) const {
  return links_[link].left / static_cast<double>(links_[link].streams);
}

void MaxMin::set(Flow& flow, double rate) {
  flow.rate = rate;
  flow.is_set = true;
  for (const LinkUse& use : flow.uses) {
    Link& link = links_[use.link];
    link.streams -= use.streams;
    link.left = std::max(0.0, link.left - rate * use.streams);
  }
}

}  // namespace pipewright::sim
