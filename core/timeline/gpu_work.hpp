// What GPUs did in a step, piece by piece: kernels, copies, memory that was cleared. Beside a
// Timeline, whose actions and transfers these pieces make up. Plain data, and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright {

struct GpuWork {
  enum class Kind : std::uint8_t { Kernel, Copy, Clear };

  Kind kind = Kind::Kernel;
  RankId rank;
  /// That has put it on the GPU; none: the rank did, between two of them.
  InstructionId instruction = kNoInstruction;
  std::uint32_t stream = 0;  // a number of the profiler's
  std::string name;          // of a kernel
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t bytes = 0;  // of a copy, or of what was cleared
};

/// Of one step, in the Timeline's time.
struct GpuWorkLog {
  std::vector<GpuWork> work;  // by rank, then start
  /// That there was no room for; and of which it is not known which rank they are of.
  std::int64_t dropped = 0, strays = 0;
  /// The most that a piece begins before, or ends after, the computation that has put it there, by
  /// the Timeline's own measurement: how far the two clocks are apart, at least.
  std::int64_t apart_ns = 0;
};

/// Of the time of the computations that have put something on a GPU, the part in which any of it
/// ran; the rest is the GPU's waiting for launches. 0 where none has.
double share_at_work(const Program& program, const Timeline& timeline, const GpuWorkLog& log);

}  // namespace pipewright
