#include "sim/links.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::sim {
namespace {
constexpr std::uint32_t kNoSlot = 0xffffffff;
}

Links::Links(const Program& program, const CostTable& costs, const Durations& durations)
    : program_(program), costs_(costs), durations_(durations), shared_(costs.has_shared_links()) {
  if (!shared_) return;
  if (costs.shares_by_flow()) {
    flows_.emplace(costs);
    slot_of_.assign(program.code.size(), kNoSlot);
    return;
  }
  taken_.resize(costs.links.size());
  users_.resize(costs.links.size());
  slot_of_.assign(program.code.size(), kNoSlot);
}

const RouteCosts& Links::way(InstructionId send) const {
  const Route& route = program_.routes[program_.code[send].route];
  return costs_.route(route.source, route.destination, program_.ranks());
}

void Links::request(InstructionId send, std::int64_t now, std::vector<Event>& events) {
  if (flows_) {
    const std::uint32_t route = program_.code[send].route;
    begin_flow(send,
               {message_phase(costs_, way(send), durations_.route_bytes()[route],
                              durations_.messages_of(route))},
               now, events);
    return;
  }
  if (!shared_ || way(send).links.empty()) {
    events.push_back({now + durations_.route_ns()[program_.code[send].route], send, 0});
    return;
  }
  const Route& route = program_.routes[program_.code[send].route];
  const Waiting waiting{now, route.source, route.destination, send};
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), waiting), waiting);
}

void Links::begin_collective(std::uint32_t index, std::int64_t now, std::vector<Event>& events) {
  const Collective& collective = program_.collectives[index];
  const InstructionId name = collective.members.front().instruction;
  const std::int64_t whole_ns = durations_.collective_ns()[index];
  if (!flows_) {
    events.push_back({now + whole_ns, name, 0});
    return;
  }
  begin_flow(name, collective_phases(costs_, collective, program_.ranks(), whole_ns), now, events);
}

void Links::begin_flow(InstructionId name, std::vector<FlowPhase> phases, std::int64_t now,
                       std::vector<Event>& events) {
  const std::uint32_t slot = flows_->begin(std::move(phases), now, of_flows_);
  if (named_.size() <= slot) named_.resize(slot + std::size_t{1});
  named_[slot] = name;
  slot_of_[name] = slot;
  give_events(events);
}

void Links::give_events(std::vector<Event>& events) {
  for (const Flows::Event& event : of_flows_)
    events.push_back({event.time, named_[event.slot], event.stamp});
  of_flows_.clear();
}

void Links::settle(std::int64_t now, std::vector<Event>& events) {
  if (flows_) {
    flows_->settle(now, of_flows_);
    give_events(events);
    return;
  }
  if (waiting_.empty()) return;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (!begin_serial(waiting)) return false;
    begin(waiting.send, now, events);
    return true;
  });
}

bool Links::begin_serial(const Waiting& waiting) {
  const auto& links = way(waiting.send).links;
  const auto serial = [&](std::uint32_t l) { return costs_.links[l].sharing == Sharing::Serial; };
  if (std::any_of(links.begin(), links.end(),
                  [&](std::uint32_t l) { return serial(l) && taken_[l] != 0; }))
    return false;
  for (const std::uint32_t l : links) {
    if (serial(l)) taken_[l] = 1;
  }
  return true;
}

void Links::begin(InstructionId send, std::int64_t now, std::vector<Event>& events) {
  std::uint32_t slot = kNoSlot;
  if (free_slots_.empty()) {
    slot = static_cast<std::uint32_t>(moving_.size());
    moving_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slot_of_[send] = slot;
  Moving& transfer = moving_[slot];
  const std::uint32_t route = program_.code[send].route;
  const Factor factor = durations_.messages_of(route);
  // The stamp counts on over all users of a slot, so that no event of an earlier user matches.
  transfer = {.send = send,
              .stamp = transfer.stamp + 1,
              .in_latency = true,
              .bytes_left = static_cast<double>(durations_.route_bytes()[route]) * factor.value(),
              .bytes_per_ns = 0,
              .since = now};
  events.push_back({now + scaled(way(send).latency, factor).value, send, transfer.stamp});
}

bool Links::on_event(const Event& event, std::vector<Event>& events) {
  if (flows_) {
    // One that is over, and named here for the last time, has no slot.
    const std::uint32_t slot = slot_of_[event.send];
    if (slot == kNoSlot) return false;
    const bool is_over = flows_->on_event({event.time, slot, event.stamp}, of_flows_);
    if (is_over) slot_of_[event.send] = kNoSlot;
    give_events(events);
    return is_over;
  }
  if (program_.code[event.send].in_collective()) return true;
  if (slot_of_.empty() || way(event.send).links.empty()) return true;
  const std::uint32_t slot = slot_of_[event.send];
  if (slot == kNoSlot || moving_[slot].stamp != event.stamp) return false;
  if (moving_[slot].in_latency && way(event.send).bytes_per_second > 0 &&
      moving_[slot].bytes_left > 0) {
    join(slot, event.time, events);
    return false;
  }
  leave(slot, event.time, events);
  return true;
}

void Links::join(std::uint32_t slot, std::int64_t now, std::vector<Event>& events) {
  Moving& transfer = moving_[slot];
  transfer.in_latency = false;
  transfer.since = now;
  const RouteCosts& route = way(transfer.send);
  for (const std::uint32_t l : route.links) users_[l].push_back(slot);
  share_again(route, now, events);
}

void Links::leave(std::uint32_t slot, std::int64_t now, std::vector<Event>& events) {
  const InstructionId send = moving_[slot].send;
  const RouteCosts& route = way(send);
  for (const std::uint32_t l : route.links) {
    if (costs_.links[l].sharing == Sharing::Serial) taken_[l] = 0;
    std::erase(users_[l], slot);
  }
  slot_of_[send] = kNoSlot;
  free_slots_.push_back(slot);
  share_again(route, now, events);
}

void Links::share_again(const RouteCosts& route, std::int64_t now, std::vector<Event>& events) {
  for (const std::uint32_t l : route.links) {
    for (const std::uint32_t slot : users_[l]) set_share(moving_[slot], now, events);
  }
}

void Links::set_share(Moving& transfer, std::int64_t now, std::vector<Event>& events) {
  const double share = share_per_ns(way(transfer.send), costs_.links,
                                    [this](std::uint32_t l) { return users_[l].size(); });
  if (share == transfer.bytes_per_ns) return;
  transfer.bytes_left -= transfer.bytes_per_ns * static_cast<double>(now - transfer.since);
  transfer.since = now;
  transfer.bytes_per_ns = share;
  const std::int64_t left = ns_to_move(std::max(0.0, transfer.bytes_left), share);
  events.push_back({now + left, transfer.send, ++transfer.stamp});
}

}  // namespace pipewright::sim
