// A run as it was when it was stopped, and how the looks of several processes become one. Also how
// what each process has seen of a finished step comes together. Plain data, pure functions; times
// in nanoseconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/base/packing.hpp"
#include "exec/runtime/flight_report.hpp"
#include "exec/runtime/peers.hpp"
#include "exec/runtime/watchdog.hpp"

namespace pipewright::exec {

/// What a process knows of its own ranks; of all ranks where there is one process.
struct FinalState {
  StopCause cause = StopCause::None;
  std::string failure;  // of Failed and PeerLost: the sentence
  Timeline timeline;    // empty if there was nothing to be seen of a step
  Progress progress;
  std::vector<RankLook> ranks;
  std::vector<RankId> lost;  // whose process was gone
};

PackedBytes packed(const Program& program, const std::vector<RankId>& ranks,
                   const FinalState& look);
/// Adds what another process has handed in. Its cause wins if it says more. Throws RunError if the
/// bytes are no look.
void merge(const Program& program, const PackedBytes& bytes, FinalState& look);
/// Looks of all ranks, by rank; the lost ones are dead.
void complete(const Program& program, FinalState& look);
/// "rank 2 is dead: its process 4711 on a has ended", of several one after another.
std::string lost_text(const std::vector<LostRank>& lost);

/// Of a step that has ended: the times of these ranks, and their loss.
struct StepPart {
  Timeline timeline;
  std::optional<double> loss;
  std::string not_finite;  // of the lowest rank that has something to say (Device::not_finite())
};
PackedBytes packed(const Program& program, const std::vector<RankId>& ranks, const StepPart& part);
/// Adds what another process says; of two clauses the one that was there stays.
void merge(const Program& program, const PackedBytes& bytes, StepPart& part);

}  // namespace pipewright::exec
