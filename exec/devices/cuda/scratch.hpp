// Memory of a GPU in which kernels of one stream leave what the next ones of it take, again and
// again: as large as anybody has asked for so far. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/devices/cuda/module.hpp"

namespace pipewright::exec::cuda {

class Scratch {
 public:
  /// `stream` must outlive it.
  Scratch(const pipewright_cuda& cuda, void* stream) : cuda_(cuda), stream_(stream) {}
  ~Scratch() { cuda_.release(at_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Until the next call. Of the entered GPU; waits for the stream where it grows, which it does
  /// before anything is captured. Throws RunError.
  void* of(std::size_t bytes) {
    if (bytes <= bytes_) return at_;
    if (at_ != nullptr) {
      void* const event = required(cuda_, cuda_.event(0));
      const bool is_done = cuda_.record(event, stream_) == 0 && cuda_.wait_for_event(event) == 0;
      cuda_.release_event(event);
      require(cuda_, is_done ? 0 : 1);
      cuda_.release(at_);
      at_ = nullptr;
      bytes_ = 0;
    }
    at_ = required(cuda_, cuda_.allocate(bytes));
    bytes_ = bytes;
    return at_;
  }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

 private:
  const pipewright_cuda& cuda_;
  void* const stream_;
  void* at_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace pipewright::exec::cuda
