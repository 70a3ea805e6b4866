// The profiler of the host's CUDA table (tests/support/host_cuda.hpp), as CUPTI is that of GPUs: it
// watches what is put on streams, makes its records in small buffers that a thread of its own
// reads, and has a clock of its own, whose times it puts on the clock that it is given. The records
// are brought together by the module's own text (exec/devices/cuda/module/activity_records.hpp).
#pragma once

#include <cstdint>
#include <functional>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::tests::host {

/// What is put on a stream.
struct Label {
  int kind = PIPEWRIGHT_CUDA_KERNEL;
  const char* name = nullptr;  // of a kernel
  std::int64_t bytes = 0;
};

/// The same work, watched if anything is recorded now. `captured`: into a graph, which may do it
/// several times. By the thread that puts it there.
std::function<void()> watched(std::function<void()> work, const Label& label, std::uint32_t stream,
                              bool captured);

/// Who is told of it in the table's profiler's place, at any time.
struct Watcher {
  /// That a piece of work is put on a stream, by the thread that does; gives its number.
  std::uint64_t (*put)(int is_captured) = nullptr;
  /// That it has been done, each time. The times are the host's clock's.
  void (*done)(std::uint64_t number, const pipewright_cuda_activity* work) = nullptr;
};
void watch_with(const Watcher& watcher);

/// Fills the table's functions of activities.
void offer_activities(pipewright_cuda& table);

}  // namespace pipewright::tests::host
