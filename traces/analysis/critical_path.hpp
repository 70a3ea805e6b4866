// What the length of a step depends on: a chain of computations and messages from its start to its
// end, each of which began when the one before it ended. Pure function; nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

enum class PathKind : std::uint8_t {
  Compute,     // the instruction ran
  Message,     // its data moved; on shared links it also waited for these
  Collective,  // all members were there
  Wait,        // nothing in the Program held it back: launching, credit; none of a simulation whose
               // sends need no credit
};
inline constexpr int kPathKinds = 4;

/// "computation", "message", "collective", "unexplained".
std::string_view to_string(PathKind kind);

/// Whether the times of a step follow from its Program, or were read off other tools' clocks: there
/// a rank may issue a transfer, or see that it has ended, later than the Program lets it.
enum class Times : std::uint8_t { Simulated, Measured };

struct PathStep {
  InstructionId instruction = kNoInstruction;  // of a message the end at which the path comes in
  std::int64_t start_ns = 0, end_ns = 0;
  PathKind kind = PathKind::Compute;
};

/// By time; the first starts at 0, each starts where the one before it ends, the last ends with the
/// step. Of several reasons that end at one moment the rank's own comes first. Without waits it is
/// a longest path through the Program. Of a step that got stuck: up to what ended last.
std::vector<PathStep> critical_path(const Program& program, const Timeline& timeline,
                                    Times times = Times::Simulated);

}  // namespace pipewright::traces
