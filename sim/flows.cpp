#include "sim/flows.hpp"

#include <algorithm>
#include <cmath>

#include "core/program/collectives.hpp"

namespace pipewright::sim {
namespace {

constexpr double kLongest = 1e17;  // nanoseconds: sums of these stay within 63 bits

std::vector<double> capacities_of(const CostTable& costs) {
  std::vector<double> rates;
  rates.reserve(costs.links.size());
  for (const Link& link : costs.links) rates.push_back(link.bytes_per_second * 1e-9);
  return rates;
}

/// Adds the links of a route that are shared, each once.
void add_uses(const CostTable& costs, const RouteCosts& route, std::vector<LinkUse>& uses) {
  for (const std::uint32_t link : route.links) {
    if (costs.links[link].sharing == Sharing::MaxMin) uses.push_back({link, 1});
  }
}

std::vector<LinkUse> counted(std::vector<LinkUse> uses) {
  std::ranges::sort(uses, {}, &LinkUse::link);
  std::size_t kept = 0;
  for (std::size_t u = 0; u < uses.size(); ++u) {
    if (kept > 0 && uses[kept - 1].link == uses[u].link) {
      uses[kept - 1].streams += uses[u].streams;
    } else {
      uses[kept++] = uses[u];
    }
  }
  uses.resize(kept);
  return uses;
}

/// The members of a collective that go round one ring: where consecutive ranks are devices of one
/// (§3.5), those at the same place.
std::vector<std::vector<RankId>> rings_of(const Collective& collective) {
  const std::int64_t block = std::max(1, collective.block);
  std::vector<std::vector<RankId>> rings(static_cast<std::size_t>(block));
  for (const Collective::Member& member : collective.members)
    rings[static_cast<std::size_t>(member.rank.value % block)].push_back(member.rank);
  std::erase_if(rings, [](const auto& ring) { return ring.size() < 2; });
  return rings;
}

/// Calls `edge` with both ends of every stream.
template <class Edge>
void for_streams(ActionKind kind, const std::vector<RankId>& ring, Edge edge) {
  const std::size_t n = ring.size();
  for (std::size_t m = 0; m < n; ++m) {
    if (kind == ActionKind::AllToAll) {
      for (std::size_t other = 0; other < n; ++other) {
        if (other != m) edge(ring[m], ring[other]);
      }
    } else if (kind != ActionKind::Broadcast || m + 1 < n) {
      edge(ring[m], ring[(m + 1) % n]);
    }
  }
}

/// The members that count for the time.
Collective firsts_of(const Collective& collective) {
  Collective firsts = collective;
  std::erase_if(firsts.members, [&](const Collective::Member& member) {
    return collective.block > 1 && member.rank.value % collective.block != 0;
  });
  return firsts;
}

/// Collectives that happen at once, each of which moves so many bytes in so long.
FlowPhase phase_of(const CostTable& costs, const std::vector<Collective>& at_once,
                   std::int64_t moved, int ranks, std::int64_t whole_ns) {
  FlowPhase phase{.fixed_ns = whole_ns, .bytes = 0, .most_bytes_per_ns = 0, .uses = {}};
  double slowest_way = 0;
  for (const Collective& collective : at_once) {
    for (const std::vector<RankId>& ring : rings_of(collective)) {
      for_streams(collective.kind, ring, [&](RankId from, RankId to) {
        const RouteCosts& way = costs.route(from, to, ranks);
        add_uses(costs, way, phase.uses);
        if (slowest_way == 0 || way.bytes_per_second < slowest_way)
          slowest_way = way.bytes_per_second;
      });
    }
  }
  phase.uses = counted(std::move(phase.uses));
  const Collective first = firsts_of(at_once.front());
  // Of what a library's price or a given time consists is not known: all of it is moving.
  const bool is_ring = costs.collectives == nullptr && first.given.up_to == 0;
  const std::int64_t moving_ns = is_ring ? costs.moving_time(first, moved, ranks).value -
                                               costs.moving_time(first, 0, ranks).value
                                         : whole_ns;
  const bool is_exchange = first.kind == ActionKind::AllToAll;
  const auto members = static_cast<double>(first.size());
  const auto bytes_times_n =
      static_cast<double>(is_exchange ? moved : ring_work(first, moved).bytes_times_n);
  if (phase.uses.empty() || moving_ns <= 0 || bytes_times_n <= 0) return phase;
  phase.fixed_ns = std::max<std::int64_t>(0, whole_ns - moving_ns);
  phase.bytes = bytes_times_n / members;
  // An exchange as a ring has all its bytes on the slowest way; here each part takes its own.
  phase.most_bytes_per_ns =
      is_ring && is_exchange ? slowest_way * 1e-9 : phase.bytes / static_cast<double>(moving_ns);
  return phase;
}

}  // namespace

FlowPhase message_phase(const CostTable& costs, const RouteCosts& way, std::int64_t bytes,
                        Factor times) {
  FlowPhase phase{.fixed_ns = scaled(way.latency, times).value,
                  .bytes = static_cast<double>(bytes) * times.value(),
                  .most_bytes_per_ns = way.bytes_per_second * 1e-9,
                  .uses = {}};
  add_uses(costs, way, phase.uses);
  phase.uses = counted(std::move(phase.uses));
  return phase;
}

std::vector<FlowPhase> collective_phases(const CostTable& costs, const Collective& collective,
                                         int ranks, std::int64_t whole_ns) {
  const auto moved = costs.collective_bytes(collective);
  if (!moved) return {{.fixed_ns = whole_ns, .bytes = 0, .most_bytes_per_ns = 0, .uses = {}}};
  const std::int64_t table_ns = costs.collective_time(collective, ranks).value;
  std::vector<FlowPhase> phases;
  if (collective.groups == 1) {
    phases = {phase_of(costs, {collective}, *moved, ranks, table_ns)};
  } else {
    const GroupedSums sums = grouped_sums(collective, *moved);
    std::int64_t across_ns = 0;
    for (const Collective& one : sums.across)
      across_ns = std::max(across_ns, costs.moving_time(one, sums.part_bytes, ranks).value);
    phases = {phase_of(costs, sums.inside, *moved, ranks, table_ns - across_ns),
              phase_of(costs, sums.across, sums.part_bytes, ranks, across_ns)};
  }
  if (whole_ns == table_ns || table_ns == 0) return phases;
  const double times = static_cast<double>(whole_ns) / static_cast<double>(table_ns);
  for (FlowPhase& phase : phases) {
    phase.fixed_ns = std::llround(static_cast<double>(phase.fixed_ns) * times);
    phase.bytes *= times;
  }
  return phases;
}

Flows::Flows(const CostTable& costs) : shares_(capacities_of(costs)) {}

std::uint32_t Flows::begin(std::vector<FlowPhase> phases, std::int64_t now,
                           std::vector<Event>& events) {
  std::uint32_t slot = static_cast<std::uint32_t>(moving_.size());
  if (free_slots_.empty()) {
    moving_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  // The stamp counts on over all users of a slot, so that no event of an earlier user matches.
  moving_[slot].phases = std::move(phases);
  moving_[slot].phase = 0;
  begin_phase(slot, now, events);
  return slot;
}

void Flows::begin_phase(std::uint32_t slot, std::int64_t now, std::vector<Event>& events) {
  Moving& flow = moving_[slot];
  flow.is_sharing = false;
  events.push_back({now + flow.phases[flow.phase].fixed_ns, slot, ++flow.stamp});
}

bool Flows::on_event(const Event& event, std::vector<Event>& events) {
  Moving& flow = moving_[event.slot];
  if (flow.stamp != event.stamp) return false;
  const FlowPhase& phase = flow.phases[flow.phase];
  if (!flow.is_sharing && phase.bytes > 0 && phase.most_bytes_per_ns > 0) {
    flow.is_sharing = has_changed_ = true;
    flow.bytes_left = phase.bytes;
    flow.bytes_per_ns = 0;
    flow.since = event.time;
    shares_.put_in(event.slot, phase.uses, phase.most_bytes_per_ns);
    return false;
  }
  if (flow.is_sharing) {
    shares_.take_out(event.slot);
    has_changed_ = true;
  }
  if (++flow.phase < flow.phases.size()) {
    begin_phase(event.slot, event.time, events);
    return false;
  }
  ++flow.stamp;
  free_slots_.push_back(event.slot);
  return true;
}

void Flows::settle(std::int64_t now, std::vector<Event>& events) {
  if (!has_changed_) return;
  has_changed_ = false;
  for (const std::uint32_t slot : shares_.share_again()) {
    Moving& flow = moving_[slot];
    const double rate = shares_.rate(slot);
    if (rate == flow.bytes_per_ns) continue;
    flow.bytes_left -= flow.bytes_per_ns * static_cast<double>(now - flow.since);
    flow.since = now;
    flow.bytes_per_ns = rate;
    // The epsilon keeps an exact quotient from being rounded up by its last bits.
    const double left = std::ceil(std::max(0.0, flow.bytes_left) / rate - 1e-6);
    events.push_back(
        {now + static_cast<std::int64_t>(std::min(left, kLongest)), slot, ++flow.stamp});
  }
}

}  // namespace pipewright::sim
