#include "sim/dumps/dumped_job.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/error.hpp"
#include "core/order/call.hpp"
#include "sim/dumps/dump_text.hpp"
#include "sim/dumps/group_members.hpp"

namespace pipewright::sim {
namespace {

/// The ranks of the job, as a dump tells them: those of the group of all; empty where it does not.
std::vector<RankId> world_of(const Dump& dump) {
  const auto all = std::ranges::find_if(dump.groups, &RecordedGroup::is_default);
  if (all == dump.groups.end()) return {};
  std::vector<RankId> ranks = all->ranks;
  std::ranges::sort(ranks);
  return ranks;
}

void require_one_world(const std::vector<Dump>& dumps) {
  const Dump* first = nullptr;
  std::vector<RankId> world;
  for (const Dump& dump : dumps) {
    const std::vector<RankId> own = world_of(dump);
    if (own.empty()) continue;
    if (!std::ranges::binary_search(own, dump.rank))
      throw InputError(dump.file, "",
                       "is the dump of rank " + std::to_string(dump.rank.value) +
                           " by its name, but of a job of " + std::to_string(own.size()) +
                           " ranks, counted from 0");
    if (first == nullptr) {
      first = &dump;
      world = own;
    } else if (own != world) {
      throw InputError(dump.file, "",
                       "is of a job of " + std::to_string(own.size()) + " ranks, but " +
                           first->file + " of one of " + std::to_string(world.size()) +
                           "; give the dumps of one job");
    }
  }
}

/// How many ranks the job has at least: all that a dump names, and as many parts as the group of
/// all gathers.
std::int64_t ranks_named(const std::vector<Dump>& dumps, const NamedRanks& named) {
  std::int64_t most = 0;
  const auto name = [&](const std::vector<RankId>& ranks) {
    for (const RankId rank : ranks) most = std::max<std::int64_t>(most, rank.value + 1);
  };
  for (const auto& [group, ranks] : named) name(ranks);
  for (const Dump& dump : dumps) {
    name({dump.rank});
    name(dump.others);
    for (const RecordedGroup& group : dump.groups) name(group.ranks);
    for (const RecordedCall& call : dump.calls) {
      if (dump.groups[call.group].is_default()) most = std::max(most, parts_in(call));
    }
  }
  return std::min<std::int64_t>(most, kMostGroupRanks);
}

void require_each_once(const std::vector<Dump>& dumps, std::int64_t ranks) {
  for (std::size_t i = 1; i < dumps.size(); ++i) {
    if (dumps[i].rank == dumps[i - 1].rank)
      throw InputError(dumps[i].file, "",
                       "is the dump of rank " + std::to_string(dumps[i].rank.value) +
                           ", and so is " + dumps[i - 1].file);
  }
  std::vector<RankId> missing;
  for (std::int64_t r = 0; r < ranks; ++r) {
    if (!std::ranges::binary_search(dumps, RankId(r), {}, &Dump::rank)) missing.emplace_back(r);
  }
  if (missing.empty()) return;
  throw InputError("no dump of " + ranks_text(missing) + " was given, and the job has " +
                   std::to_string(ranks) +
                   " ranks; give the dump of each, for one that is missing may be at fault");
}

}  // namespace

DumpedJob join_dumps(std::vector<Dump> dumps, const NamedRanks& named) {
  std::ranges::stable_sort(dumps, {}, &Dump::rank);
  require_one_world(dumps);
  require_each_once(dumps, ranks_named(dumps, named));
  find_members(dumps, named);
  DumpedJob job;
  for (Dump& dump : dumps) {
    std::vector<std::size_t> number;
    for (const RecordedGroup& group : dump.groups) {
      const auto known = std::ranges::find_if(job.groups, [&](const RecordedGroup& other) {
        return other.name == group.name && other.ranks == group.ranks;
      });
      number.push_back(static_cast<std::size_t>(known - job.groups.begin()));
      if (known == job.groups.end()) job.groups.push_back(group);
    }
    for (RecordedCall& call : dump.calls) call.group = number[call.group];
  }
  job.dumps = std::move(dumps);
  return job;
}

}  // namespace pipewright::sim
