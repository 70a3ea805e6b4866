#include "core/program/version_changes.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace pipewright {
namespace {

using StagePass = std::pair<std::int64_t, std::int64_t>;  // stage, micro-batch

template <typename Take>
void for_each_computation(const Cell& cell, const Take& take) {
  if (is_compute(cell.action.kind)) take(cell.action);
  if (cell.partner && is_compute(cell.partner->kind)) take(*cell.partner);
}

/// What each stage and micro-batch is computed with: a W need not name it.
std::map<StagePass, int> named_versions(std::span<const Cell> list) {
  std::map<StagePass, int> named;
  for (const Cell& cell : list) {
    for_each_computation(cell, [&](const Action& a) {
      if (a.version >= 0) named[{a.stage.value, a.micro_batch.value}] = a.version;
    });
  }
  return named;
}

}  // namespace

std::vector<VersionChange> version_changes(std::span<const Cell> list,
                                           std::span<const StageId> stages) {
  using Version = std::pair<std::int64_t, int>;  // stage, version
  std::vector<VersionChange> changes;
  const std::map<StagePass, int> named = named_versions(list);
  if (named.empty()) return changes;
  const auto version_of = [&](const Action& a) {
    const auto found = named.find({a.stage.value, a.micro_batch.value});
    return Version{a.stage.value, found == named.end() ? 0 : found->second};
  };
  std::map<Version, std::size_t> last_use;
  for (std::size_t at = 0; at < list.size(); ++at)
    for_each_computation(list[at], [&](const Action& a) { last_use[version_of(a)] = at; });

  int current = 0;
  std::set<Version> kept;
  for (std::size_t at = 0; at < list.size(); ++at) {
    if (list[at].action.kind == ActionKind::Opt) {
      for (const StageId stage : stages) {
        const auto last = last_use.find({stage.value, current});
        if (last == last_use.end() || last->second < at) continue;
        kept.insert(last->first);
        changes.push_back({at, static_cast<int>(stage.value), 1});
      }
      ++current;
    }
    for_each_computation(list[at], [&](const Action& a) {
      const Version version = version_of(a);
      if (last_use[version] == at && kept.erase(version) > 0)
        changes.push_back({at, static_cast<int>(a.stage.value), -1});
    });
  }
  return changes;
}

std::vector<VersionChange> version_changes(const Program& program, RankId rank) {
  if (!program.asynchronous) return {};
  const auto r = static_cast<std::size_t>(rank.value);
  std::vector<Cell> list;
  for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id)
    list.push_back(program.cell(id));
  return version_changes(list, program.placement.stages_of(rank));
}

}  // namespace pipewright
