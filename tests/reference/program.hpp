// Sections 2, 3 and 4.1 of docs/semantics.md: the lanes, inputs and partners of a lowered order.
#pragma once

#include <vector>

#include "tests/reference/order.hpp"
#include "tests/reference/policy.hpp"

namespace pipewright::reference {

constexpr int kNobody = -1;

struct Instruction {
  int rank = 0;
  Cell cell;
  int lane = 0;
  std::vector<int> inputs;  // section 3, without what stands nowhere
  // Transfer ends only.
  int peer = kNobody;     // the rank at the other end; kNobody if it lies outside a fragment
  int partner = kNobody;  // 4.1
  bool mismatch = false;
  /// The instructions whose ends issue this one (section 2): nothing, or the last computation
  /// before it.
  std::vector<int> issued_by;
  // `grouped`, all but transfer ends: the members of the run right before it.
  std::vector<int> run_before;
  // 2.4: the ends of the batch that is one operation with it, itself too; empty if it is in none.
  std::vector<int> batch;
  // 3.2: the other members of its collective; empty if it belongs to none.
  std::vector<int> others;
  bool lacks_member = false;  // 3.3: some rank of its group has none
  int devices = 1;            // 3.4: of its own rank that are members, where its group is an axis
  int stride = 1;             // 5: from one of these to the next
  bool has_parts = false;     // 3.4: an action, or a pair, that stands behind its parts

  [[nodiscard]] bool is_transfer() const { return reference::is_transfer(cell); }
  [[nodiscard]] bool is_member() const { return !others.empty() || lacks_member || devices > 1; }
  [[nodiscard]] bool is_send() const { return is_transfer() && reference::is_send(cell[0]); }
  [[nodiscard]] bool is_recv() const { return is_transfer() && reference::is_recv(cell[0]); }
};

/// A sequence that runs in order. Lane 0 of each rank is its compute lane, even if it is empty.
struct Lane {
  int rank = 0;
  int number = 0;  // within the rank, 7.1
  bool compute = false;
  std::vector<int> instructions;
};

struct Program {
  bool has_calls = false;                 // 3.3
  bool groups_apart = false;              // 2.4: some operation goes over the group's communicator
  std::vector<bool> sharded;              // by stage, 3.2
  int groups = 1;                         // of replicas, 3.2
  int devices_of_rank = 1;                // 3.4
  int block = 1;                          // ranks that are devices of one: 3.5
  std::vector<Instruction> instructions;  // rank after rank, each in program order
  std::vector<std::vector<int>> lists;    // the same by rank
  std::vector<Lane> lanes;                // by rank, then number
};

/// `lists` with the parts of their actions.
[[nodiscard]] Program build_program(const Order& lists, const Policy& policy,
                                    const Heading& heading = {});

}  // namespace pipewright::reference
