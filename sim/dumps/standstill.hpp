// What of the calls in dumps can never happen, and whose fault that seems to be.
#pragma once

#include <compare>
#include <cstddef>
#include <string>
#include <vector>

#include "sim/dumps/dumped_job.hpp"

namespace pipewright::sim {

/// A call by its rank and its position in the rank's dump.
struct CallRef {
  RankId rank;
  std::size_t call = 0;

  auto operator<=>(const CallRef&) const = default;
};

/// A collective, or a transfer, that can never happen.
struct Standstill {
  std::vector<CallRef> calls;   // that meet there, by rank
  std::vector<RankId> missing;  // who has not called it
  std::string differ;           // what of the calls is not the same: "kind", "shape", …; else ""
};

inline const RecordedCall& call_at(const DumpedJob& job, const CallRef& ref) {
  return job.dumps[static_cast<std::size_t>(ref.rank.value)].calls[ref.call];
}

/// A rank's call is what the other members of the group call next: it seems to have left out what
/// they call there. Or else it calls next what they call there, and seems to have one too many.
struct Shift {
  CallRef call, others;
  bool left_out = true;
};

/// The first calls of each group that stands still at which a rank has gone its own way: another
/// operation, other sizes, or a call from elsewhere in the program, where the dumps say from where.
std::vector<Shift> shifts_of(const DumpedJob& job, const std::vector<Standstill>& standstills);

}  // namespace pipewright::sim
