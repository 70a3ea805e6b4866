// Where the parts of a Program's collectives lie (docs/semantics.md §3.2) from the moment at which
// a member hands its own in until each member of this process has read them all. Plain bookkeeping
// for transports; not thread-safe: the transport guards it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/program/program.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

class PartTable {
 public:
  /// `local_ranks`: whose members read here.
  PartTable(const Program& program, const std::vector<RankId>& local_ranks);

  /// All members of the collective of `member`, by rank.
  std::span<const Collective::Member> members_of(InstructionId member) const;
  void put(InstructionId member, PartPtr part);
  bool is_complete(InstructionId member) const;
  /// By rank; with the last reader of this process the parts go.
  std::vector<PartPtr> read(InstructionId member);

 private:
  struct Table {
    std::vector<PartPtr> parts;  // by member
    std::size_t there = 0;       // parts that are there
    int readers = 0, read = 0;   // members of this process; those that have read
  };
  struct Place {
    InstructionId instruction = kNoInstruction;
    std::size_t collective = 0, member = 0;
  };
  const Place& place_of(InstructionId member) const;

  std::vector<Collective> collectives_;
  std::vector<Table> tables_;  // by collective
  std::vector<Place> places_;  // sorted by instruction
};

}  // namespace pipewright::exec
