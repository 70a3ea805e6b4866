// One GPU, several ranks: the order in which one host thread enqueues a whole Program, and the
// events that order the ranks' streams. An event may only be waited for once it was recorded, so
// there has to be an order in which every instruction comes behind all it waits for. There is one
// exactly where check says ok; else `stuck` is the report that check gives, and nothing was
// launched.
//
// Each lane of the Program (docs/semantics.md §2) is a stream. A transfer is a copy, enqueued at
// its SEND; the RECV enqueues nothing but the wait for it. Under a rendezvous the copy waits until
// the receiver stands at its RECV too; an eager one only for its credit. A pure function; times
// play no part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"

namespace pipewright::exec::cuda {

struct IssueOrder {
  /// All instructions, or those that come before the Program gets stuck.
  std::vector<InstructionId> order;
  /// By place in `order`: what its stream waits for before it, each earlier in `order` and in
  /// another lane.
  std::vector<InstructionId> waits;
  std::vector<std::uint32_t> waits_begin;  // those of place k: [waits_begin[k], waits_begin[k+1])
  WaitReport stuck;                        // Verdict::Ok: the order is whole

  bool is_whole() const { return stuck.verdict == Verdict::Ok; }
  std::span<const InstructionId> waits_of(std::size_t place) const {
    return {waits.data() + waits_begin[place], waits.data() + waits_begin[place + 1]};
  }
};

/// Of `costs` only the message sizes are read, for credit in bytes.
IssueOrder issue_order_of(const Program& program, const CostTable& costs);

}  // namespace pipewright::exec::cuda
