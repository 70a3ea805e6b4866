// Why a job hangs, from the dumps of its ranks: judged by check() as an order of calls.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "sim/dumps/recorded_order.hpp"
#include "sim/dumps/standstill.hpp"

namespace pipewright::sim {

/// A rank waits in a call for another rank, which stands in one, or is past all that it has called.
struct CallWait {
  CallRef waits;
  RankId waits_for;
  std::optional<CallRef> behind;  // the call in front of what is waited for; none: it is not made
};

struct RankAtEnd {
  std::size_t calls = 0, completed = 0;
  std::optional<std::size_t> last_completed;  // position in its dump
  std::vector<std::size_t> waiting;           // those that have not ended
};

struct Explanation {
  DumpedJob job;
  Guarantee guarantee = Guarantee::ByCommunicator;
  Program program;  // of the calls that are to be explained
  WaitReport report;
  std::vector<Standstill> standstills;
  std::vector<CallWait> cycle;  // whose ranks wait for one another
  /// Ranks that others wait for and that wait for nobody themselves; none where there is a cycle.
  std::vector<RankId> absent;
  std::vector<Shift> shifts;
  std::vector<RankAtEnd> ranks;

  Verdict verdict() const { return report.verdict; }
};

/// Judges the job under each guarantee, the least first, until the order of its calls explains a
/// hang; Ok: under none of them.
Explanation explain(DumpedJob job);

}  // namespace pipewright::sim
