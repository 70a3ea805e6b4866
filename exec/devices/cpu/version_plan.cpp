#include "exec/devices/cpu/version_plan.hpp"

#include <algorithm>

namespace pipewright::exec::cpu {

VersionPlan::VersionPlan(const Program& program, RankId rank)
    : micro_batches_(static_cast<std::size_t>(program.micro_batches)),
      versions_(static_cast<std::size_t>(program.stages) * micro_batches_, 0),
      last_uses_(static_cast<std::size_t>(program.stages)) {
  if (!program.asynchronous) return;
  const auto begin = program.rank_begin[static_cast<std::size_t>(rank.value)];
  const auto end = program.rank_begin[static_cast<std::size_t>(rank.value) + 1];
  // First the actions that name a version: a W need not name it.
  for (const bool naming : {true, false}) {
    for (InstructionId id = begin; id < end; ++id) {
      const Cell cell = program.cell(id);
      for (const Action* a : {&cell.action, cell.partner ? &*cell.partner : nullptr}) {
        if (a == nullptr || !is_compute(a->kind)) continue;
        const std::size_t place = static_cast<std::size_t>(a->stage.value) * micro_batches_ +
                                  static_cast<std::size_t>(a->micro_batch.value);
        if (naming && a->version >= 0) versions_[place] = a->version;
        if (!naming) note(id, *a);
      }
    }
  }
}

void VersionPlan::note(InstructionId id, const Action& action) {
  auto& last = last_uses_[static_cast<std::size_t>(action.stage.value)];
  const auto version =
      static_cast<std::size_t>(version_of(action.stage.value, action.micro_batch.value));
  if (last.size() <= version) last.resize(version + 1, 0);
  last[version] = std::max(last[version], id + 1);
}

bool VersionPlan::is_used_behind(int stage, int version, InstructionId id) const {
  const auto& last = last_uses_[static_cast<std::size_t>(stage)];
  // One past the last use; 0 where nobody uses the version.
  return static_cast<std::size_t>(version) < last.size() &&
         last[static_cast<std::size_t>(version)] > id + 1;
}

}  // namespace pipewright::exec::cpu
