// The cosines and sines by which rotary positions turn, on a GPU: made on the host, as the CPU
// makes them (exec/devices/cpu/kernels/rotary.hpp), when a shape is first asked for. One thread at
// a time.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/devices/cuda/module.hpp"
#include "exec/devices/cuda/pinned.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cuda {

class RotaryTurns {
 public:
  /// `stream`, on which they are copied, must outlive it.
  RotaryTurns(const pipewright_cuda& cuda, void* stream) : cuda_(cuda), stream_(stream) {}
  ~RotaryTurns();
  RotaryTurns(const RotaryTurns&) = delete;
  RotaryTurns& operator=(const RotaryTurns&) = delete;

  /// Takes memory of the entered GPU, and puts a copy on the stream, for a shape that is new.
  const float* of(const RotaryShape& shape);
  std::int64_t bytes() const;

 private:
  struct Made {
    int sequence = 0, head_width = 0;
    double base = 0;
    ContextPlace context;
    Pinned<float> staged;  // the copy may not be done yet
    float* at = nullptr;
  };

  const pipewright_cuda& cuda_;
  void* const stream_;
  std::vector<Made> made_;
};

}  // namespace pipewright::exec::cuda
