#include "core/program/version_uses.hpp"

namespace pipewright {
namespace {

template <class Visit>
void for_each_computation(const Cell& cell, const Visit& visit) {
  if (is_compute(cell.action.kind)) visit(cell.action);
  if (cell.partner && is_compute(cell.partner->kind)) visit(*cell.partner);
}

}  // namespace

VersionUses::VersionUses(std::span<const Cell> list) {
  for (const Cell& cell : list) {  // a W need not name the version
    for_each_computation(cell, [&](const Action& a) {
      if (a.version < 0) return;
      auto& versions = stages_[a.stage.value].versions;
      const auto m = static_cast<std::size_t>(a.micro_batch.value);
      if (versions.size() <= m) versions.resize(m + 1, 0);
      versions[m] = a.version;
    });
  }
  if (stages_.empty()) return;
  for (std::size_t place = 0; place < list.size(); ++place) {
    for_each_computation(list[place], [&](const Action& a) {
      const int version = version_of(a.stage.value, a.micro_batch.value);
      stages_[a.stage.value].ends[version] = place + 1;
    });
  }
}

int VersionUses::version_of(int stage, int micro_batch) const {
  const auto found = stages_.find(stage);
  if (found == stages_.end()) return 0;
  const auto& versions = found->second.versions;
  const auto m = static_cast<std::size_t>(micro_batch);
  return m < versions.size() ? versions[m] : 0;
}

std::size_t VersionUses::end_of(int stage, int version) const {
  const auto found = stages_.find(stage);
  if (found == stages_.end()) return 0;
  const auto end = found->second.ends.find(version);
  return end == found->second.ends.end() ? 0 : end->second;
}

bool VersionUses::is_used_after(int stage, int version, std::size_t place) const {
  return end_of(stage, version) > place + 1;
}

bool VersionUses::is_last_use(int stage, int version, std::size_t place) const {
  return end_of(stage, version) == place + 1;
}

}  // namespace pipewright
