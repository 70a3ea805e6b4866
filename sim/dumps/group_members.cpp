#include "sim/dumps/group_members.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "sim/dumps/operations.hpp"

namespace pipewright::sim {
namespace {

/// What is known of a group whose members no dump says.
struct Seen {
  std::vector<RankId> callers;
  std::int64_t parts = 0;  // the most in any call; 0: no call says it
  std::map<RankId, std::vector<const RecordedCall*>> waiting;
};

Seen seen_of(const std::string& name, const std::vector<Dump>& dumps) {
  Seen seen;
  for (const Dump& dump : dumps) {
    for (const RecordedCall& call : dump.calls) {
      if (dump.groups[call.group].name != name || !dump.groups[call.group].ranks.empty()) continue;
      if (seen.callers.empty() || seen.callers.back() != dump.rank)
        seen.callers.push_back(dump.rank);
      seen.parts = std::max(seen.parts, parts_in(call));
      if (call.state != CallState::Completed) seen.waiting[dump.rank].push_back(&call);
    }
  }
  return seen;
}

/// Whether all callers stand in one call, alike: as far as they go it could happen.
bool wait_for_somebody_else(const Seen& seen) {
  if (seen.waiting.size() != seen.callers.size() || seen.waiting.empty()) return false;
  const RecordedCall& first = *seen.waiting.begin()->second.front();
  return std::ranges::all_of(seen.waiting, [&](const auto& own) {
    const RecordedCall& call = *own.second.front();
    return call.number == first.number && difference(call_of(call, {}), call_of(first, {})).empty();
  });
}

using SeenByName = std::map<std::string, Seen>;

RecordedGroup with_members(RecordedGroup group, RankId rank, const std::vector<Dump>& dumps,
                           const NamedRanks& named, SeenByName& seen_by_name) {
  if (const auto given = named.find(group.name); given != named.end()) {
    group.ranks = given->second;
    return group;
  }
  for (const Dump& dump : dumps) {
    for (const RecordedGroup& other : dump.groups) {
      const bool is_it = other.name == group.name && other.members == Members::Recorded &&
                         std::ranges::count(other.ranks, rank) != 0;
      if (is_it) return other;
    }
  }
  std::vector<RankId> all;
  for (const Dump& dump : dumps) all.push_back(dump.rank);
  if (group.is_default()) {
    group.ranks = all;
    return group;
  }
  const auto [known, is_new] = seen_by_name.try_emplace(group.name);
  if (is_new) known->second = seen_of(group.name, dumps);
  const Seen& seen = known->second;
  const bool complete = seen.parts == static_cast<std::int64_t>(seen.callers.size());
  const bool more = seen.parts > static_cast<std::int64_t>(seen.callers.size());
  const bool assumed = more || (!complete && wait_for_somebody_else(seen));
  group.ranks = assumed ? all : seen.callers;
  group.members = assumed ? Members::Assumed : Members::Seen;
  return group;
}

void require_member(const Dump& dump, const RecordedCall& call) {
  const RecordedGroup& group = dump.groups[call.group];
  if (std::ranges::count(group.ranks, dump.rank) != 0) return;
  throw InputError(dump.file, "",
                   "has rank " + std::to_string(dump.rank.value) + " call group " + group.name +
                       ", which has not that rank among its own");
}

}  // namespace

std::int64_t parts_in(const RecordedCall& call) {
  const bool gathers = call.operation == "all_gather" || call.operation == "_all_gather_base";
  const std::int64_t in = elements_of(call.inputs), out = elements_of(call.outputs);
  return gathers && in > 0 && out % in == 0 ? out / in : 0;
}

void find_members(std::vector<Dump>& dumps, const NamedRanks& named) {
  std::vector<std::vector<RecordedGroup>> found;
  SeenByName seen;
  for (const Dump& dump : dumps) {
    auto& groups = found.emplace_back(dump.groups);
    for (RecordedGroup& group : groups) {
      if (group.ranks.empty()) group = with_members(group, dump.rank, dumps, named, seen);
    }
  }
  for (std::size_t r = 0; r < dumps.size(); ++r) {
    dumps[r].groups = std::move(found[r]);
    for (const RecordedCall& call : dumps[r].calls) require_member(dumps[r], call);
  }
}

}  // namespace pipewright::sim
