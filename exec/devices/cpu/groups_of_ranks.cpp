#include "exec/devices/cpu/groups_of_ranks.hpp"

#include <string_view>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "core/plan/rank_axes.hpp"
#include "exec/collectives/threads.hpp"

namespace pipewright::exec::cpu {
namespace {

/// Those that are the group of this name join, of this process.
void join(const Program& program, std::string_view name, Transport& transport,
          const GroupOfProcesses& group_of,
          std::unique_ptr<collectives::Group> GroupsOfRank::*which,
          std::vector<GroupsOfRank>& groups) {
  const auto at = [&](RankId rank) -> auto& {
    return groups[static_cast<std::size_t>(rank.value)].*which;
  };
  const auto span = span_of(program.devices, name);
  if (!span) return;
  const RankId own = transport.local_ranks().front();
  // A time that has passed: it throws where the run is being stopped, and else returns at once.
  const collectives::Look look = [&transport, own] { transport.sleep_until(own, 0); };
  for (int r = 0; r < program.ranks(); ++r) {
    if (place_in(*span, RankId(r)) != 0) continue;
    const std::vector<RankId> ranks = ranks_in(*span, RankId(r));
    if (transport.peers() != nullptr) {
      PIPEWRIGHT_ASSERT(group_of, "nobody makes groups of processes");
      if (auto group = group_of(ranks, look)) at(own) = std::move(group);
      continue;
    }
    auto members = collectives::groups_of_threads(span->devices, look);
    for (std::size_t m = 0; m < ranks.size(); ++m) at(ranks[m]) = std::move(members[m]);
  }
}

}  // namespace

std::vector<GroupsOfRank> groups_of_ranks(const Program& program, const StageDivision& division,
                                          Transport& transport, const GroupOfProcesses& group_of) {
  std::vector<GroupsOfRank> groups(static_cast<std::size_t>(program.ranks()));
  join(program, kTensorAxis, transport, group_of, &GroupsOfRank::tensor, groups);
  join(program, expert_group_name(division), transport, group_of, &GroupsOfRank::experts, groups);
  join(program, kContextAxis, transport, group_of, &GroupsOfRank::context, groups);
  return groups;
}

}  // namespace pipewright::exec::cpu
