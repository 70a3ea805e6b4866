#include "core/order/call_faults.hpp"

#include <algorithm>
#include <map>

#include "core/order/problems.hpp"

namespace pipewright {
namespace {

/// Calls visit(rank, cell, call), of the calls that are parts too.
template <class Visit>
void for_each_call(const Order& order, Visit visit) {
  if (order.calls.empty() && order.parts.empty()) return;
  const auto visit_parts = [&](RankId rank, std::size_t cell, const Action& action) {
    const ActionParts* of = parts_of(order.parts, action);
    for (std::size_t k = 0; of != nullptr && k < of->parts.size(); ++k) {
      if (!of->parts[k].is_computation()) visit(rank, cell, of->parts[k].call);
    }
  };
  for (int r = 0; r < order.rank_count(); ++r) {
    const auto& row = order.ranks[static_cast<std::size_t>(r)];
    for (std::size_t k = 0; k < row.size(); ++k) {
      const Cell& cell = row[k];
      if (is_call(cell.action.kind)) visit(RankId(r), k, order.call(cell.action));
      if (order.parts.empty()) continue;
      visit_parts(RankId(r), k, cell.action);
      if (cell.partner) visit_parts(RankId(r), k, *cell.partner);
    }
  }
}

const Group* named(const std::vector<Group>& groups, const std::string& name) {
  const auto found = std::ranges::find(groups, name, &Group::name);
  return found == groups.end() ? nullptr : &*found;
}

std::string list_of(const std::vector<RankId>& ranks) {
  constexpr std::size_t kShown = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i].value);
  return ranks.size() > kShown ? text + ", …" : text;
}

std::string fault_of(const Order& order, RankId rank, const Call& call) {
  if (is_transfer(call.kind)) {
    if (call.peer == rank) return to_string(call) + " goes to the rank that it stands on";
    if (call.peer.value < order.rank_count()) return "";
    return to_string(call) + " names rank " + std::to_string(call.peer.value) + ", but there are " +
           std::to_string(order.rank_count()) + ", counted from 0";
  }
  if (!is_group_collective(call.kind) || order.names_axis(call)) return "";
  const Group* group = named(order.groups, call.group);
  if (group == nullptr || std::ranges::binary_search(group->ranks, rank)) return "";
  return to_string(call) + " stands on rank " + std::to_string(rank.value) + ", but group " +
         call.group + " has the ranks " + list_of(group->ranks);
}

}  // namespace

std::optional<CallFault> call_fault(const Order& order) {
  std::optional<CallFault> fault;
  for_each_call(order, [&](RankId rank, std::size_t cell, const Call& call) {
    if (fault) return;
    std::string sentence = fault_of(order, rank, call);
    if (!sentence.empty()) fault = {rank, cell, std::move(sentence)};
  });
  return fault;
}

std::string part_fault(const Order& order) {
  const OrderExtent extent = extent_of(order);
  for (const ActionParts& of : order.parts) {
    if (of.stage.value >= extent.stages)
      return "parts are given for " + name_of(of) + ", but there are " +
             std::to_string(extent.stages) + " stages, counted from 0";
  }
  for (const auto* const axes : {&order.mesh, &order.devices}) {
    for (const Group& group : order.groups) {
      if (span_of(*axes, group.name))
        return group.name +
               " is an axis of the mesh and a group with ranks; give one of them another name";
    }
  }
  if (!order.mesh.empty() && !order.devices.empty())
    return "ranks either stand for devices (mesh) or are devices; give one of the two";
  const int block = devices_of_rank(order.devices);
  if (order.rank_count() % block != 0)
    return std::to_string(order.rank_count()) + " ranks are no blocks of " + std::to_string(block) +
           " devices; give as many ranks as whole blocks have";
  return "";
}

std::string settle_group(Group& group, const std::vector<Group>& known, int ranks) {
  std::ranges::sort(group.ranks);
  if (named(known, group.name) != nullptr) return "group " + group.name + " is named twice";
  if (group.ranks.empty()) return "group " + group.name + " has no ranks";
  const auto twice = std::ranges::adjacent_find(group.ranks);
  if (twice != group.ranks.end())
    return "group " + group.name + " names rank " + std::to_string(twice->value) + " twice";
  const int last = group.ranks.back().value;
  if (last < ranks) return "";
  return "group " + group.name + " names rank " + std::to_string(last) + ", but there are " +
         std::to_string(ranks) + ", counted from 0";
}

std::map<std::string, std::vector<RankId>> ranks_by_group(const Order& order) {
  std::map<std::string, std::vector<RankId>> groups;
  for_each_call(order, [&](RankId rank, std::size_t, const Call& call) {
    if (!is_group_collective(call.kind) || order.names_axis(call)) return;
    std::vector<RankId>& ranks = groups[call.group];
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
  });
  for (const Group& group : order.groups) groups[group.name] = group.ranks;
  return groups;
}

std::vector<std::string> lonely_group_problems(const Order& order, std::size_t most) {
  struct Place {
    RankId rank;
    std::size_t cell;
    bool several = false;
  };
  std::map<std::string, Place> first;  // by group
  for_each_call(order, [&](RankId rank, std::size_t cell, const Call& call) {
    if (!is_group_collective(call.kind) || named(order.groups, call.group) != nullptr ||
        order.names_axis(call))
      return;
    Place& place = first.try_emplace(call.group, Place{rank, cell}).first->second;
    place.several |= place.rank != rank;
  });
  std::vector<std::string> problems;
  for (const auto& [group, place] : first) {
    if (place.several || problems.size() == most) continue;
    problems.push_back(place_text(place.rank, place.cell) + ": no other rank calls group " + group +
                       ", so who is in it? Say it: \"# group " + group +
                       ": 0 1\" above the rows of a CSV, or \"groups\" in an order.json");
  }
  return problems;
}

bool holds_calls_alone(const Order& order) {
  return !order.calls.empty() && std::ranges::all_of(order.ranks, [](const auto& row) {
    return std::ranges::all_of(row, [](const Cell& cell) {
      return is_call(cell.action.kind) || cell.action.kind == ActionKind::Idle;
    });
  });
}

}  // namespace pipewright
