// Which thread of a trace shows each instruction. Viewers want the slices of a thread one after the
// other, so slices of a lane that overlap are dealt out over several threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// A slice on a thread. Half open; empty for what takes no time.
struct Slice {
  InstructionId instruction = kNoInstruction;
  std::int64_t start_ns = 0;   // what is shown: of a wait that has a slice of its own, its start
  std::int64_t moving_ns = 0;  // end of the waiting part (= start_ns where none is shown)
  std::int64_t end_ns = 0;
  bool stuck = false;  // has not ended: shown up to the end of the trace
};

struct TraceThread {
  std::string name;
  std::vector<Slice> slices;  // by start; each begins where the one before has ended, or later
};

struct TraceThreads {
  std::vector<std::vector<TraceThread>> ranks;  // thread t of a rank has tid t + 1; compute first
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;
  std::vector<std::uint32_t> thread_of;  // by instruction; kNowhere if it has no slice
};

/// Lanes become threads of the same name. Under channel = tag each transfer is a lane of its own:
/// there the ends of one peer and direction share a thread, and the time before data moves is not
/// shown, because nothing stands behind it.
TraceThreads trace_threads(const Program& program, const Timeline& timeline);

}  // namespace pipewright::traces
