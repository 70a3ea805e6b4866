#include "core/program/version_changes.hpp"

#include <set>
#include <utility>

#include "core/program/lower.hpp"
#include "core/program/version_uses.hpp"

namespace pipewright {

std::vector<VersionChange> version_changes(std::span<const Cell> list,
                                           std::span<const StageId> stages) {
  std::vector<VersionChange> changes;
  const VersionUses uses(list);
  if (uses.empty()) return changes;
  int current = 0;
  std::set<std::pair<int, int>> kept;  // stage, version
  const auto let_go = [&](const Action& a, std::size_t place) {
    if (!is_compute(a.kind)) return;
    const int stage = a.stage.value, version = uses.version_of(stage, a.micro_batch.value);
    if (uses.is_last_use(stage, version, place) && kept.erase({stage, version}) > 0)
      changes.push_back({place, stage, -1});
  };
  for (std::size_t place = 0; place < list.size(); ++place) {
    const Cell& cell = list[place];
    if (cell.action.kind == ActionKind::Opt) {
      for (const StageId stage : stages) {
        if (!uses.is_used_after(stage.value, current, place)) continue;
        kept.insert({stage.value, current});
        changes.push_back({place, stage.value, 1});
      }
      ++current;
    }
    let_go(cell.action, place);
    if (cell.partner) let_go(*cell.partner, place);
  }
  return changes;
}

std::vector<VersionChange> version_changes(const Program& program, RankId rank) {
  if (!program.asynchronous) return {};
  return version_changes(cells_of(program, rank), program.placement.stages_of(rank));
}

}  // namespace pipewright
