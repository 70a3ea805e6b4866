#include "exec/runtime/part_table.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright::exec {

PartTable::PartTable(const Program& program, const std::vector<RankId>& local_ranks) {
  collectives_ = program.collectives;
  for (std::size_t c = 0; c < collectives_.size(); ++c) {
    const auto& members = collectives_[c].members;
    Table table;
    table.parts.resize(members.size());
    for (std::size_t m = 0; m < members.size(); ++m) {
      places_.push_back({members[m].instruction, c, m});
      table.readers +=
          static_cast<int>(std::count(local_ranks.begin(), local_ranks.end(), members[m].rank));
    }
    tables_.push_back(std::move(table));
  }
  std::sort(places_.begin(), places_.end(),
            [](const Place& a, const Place& b) { return a.instruction < b.instruction; });
}

const PartTable::Place& PartTable::place_of(InstructionId member) const {
  const auto at =
      std::lower_bound(places_.begin(), places_.end(), member,
                       [](const Place& place, InstructionId id) { return place.instruction < id; });
  PIPEWRIGHT_ASSERT(at != places_.end() && at->instruction == member,
                    "a part of an instruction that belongs to no collective");
  return *at;
}

std::span<const Collective::Member> PartTable::members_of(InstructionId member) const {
  return collectives_[place_of(member).collective].members;
}

void PartTable::put(InstructionId member, PartPtr part) {
  const Place& place = place_of(member);
  Table& table = tables_[place.collective];
  PIPEWRIGHT_ASSERT(table.parts[place.member] == nullptr, "a part was handed in twice");
  table.parts[place.member] = std::move(part);
  ++table.there;
}

bool PartTable::is_complete(InstructionId member) const {
  const Table& table = tables_[place_of(member).collective];
  return table.there == table.parts.size();
}

std::vector<PartPtr> PartTable::read(InstructionId member) {
  PIPEWRIGHT_ASSERT(is_complete(member), "a collective was read before all its parts were there");
  Table& table = tables_[place_of(member).collective];
  if (++table.read < table.readers) return table.parts;
  table.read = 0;
  table.there = 0;
  std::vector<PartPtr> parts(table.parts.size());
  parts.swap(table.parts);
  return parts;
}

}  // namespace pipewright::exec
