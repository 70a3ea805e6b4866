// Which REDUCE_GRADs and UNSHARDs of replicas, REDUCE_NORMs, REDUCE_TIEDs and calls belong together
// (docs/semantics.md §3.2, §3.3). Part of lower(), which writes the answer into
// Program::collectives; everybody else reads it there.
#pragma once

#include "core/order/order.hpp"
#include "core/program/program.hpp"

namespace pipewright {

/// Fills Program::collectives and marks their members; under `stream` these leave the compute lane,
/// but for those of all ranks. O(instructions).
void find_collectives(const Order& order, Program& program);

/// Bytes of the ring that a collective goes round, and its steps: an all-reduce moves every byte
/// 2(n-1)/n times in 2(n-1) steps, a reduce-scatter or an all-gather half of that (Patarasuk and
/// Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009), and so does
/// an exchange of all with all; a broadcast hands every byte on once.
struct RingWork {
  std::int64_t steps = 0;          // each pays the latency
  std::int64_t bytes_times_n = 0;  // n times the bytes that go over each link of the ring
};
RingWork ring_work(const Collective& collective, std::int64_t parameter_bytes);

/// Of a REDUCE_GRAD in groups (Collective::groups) what its members do one after the other: a
/// reduce-scatter of each group, at once, and a sum of each part over the groups, at once.
struct GroupedSums {
  std::vector<Collective> inside, across;
  std::int64_t part_bytes = 0;  // that are summed across
};
GroupedSums grouped_sums(const Collective& collective, std::int64_t parameter_bytes);

}  // namespace pipewright
