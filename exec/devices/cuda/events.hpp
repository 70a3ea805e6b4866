// Events of a GPU, used again and again: making one takes longer than recording it. A handle is
// counted; with the last one the event goes back. Handles may outlive the pool that they came from,
// and may be dropped by any thread.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// The event itself, for the calls of the table; an empty one stands for what is over already.
using Event = std::shared_ptr<void>;

class EventPool {
 public:
  /// Of the GPU and partition that the calling thread has entered whenever take() makes one.
  explicit EventPool(const pipewright_cuda& cuda) : shelf_(std::make_shared<Shelf>(cuda)) {}

  /// Not recorded yet. Throws RunError.
  Event take(bool is_timed);

 private:
  struct Shelf {
    explicit Shelf(const pipewright_cuda& table) : cuda(table) {}
    ~Shelf();
    Shelf(const Shelf&) = delete;
    Shelf& operator=(const Shelf&) = delete;

    const pipewright_cuda& cuda;
    std::mutex mutex;
    std::vector<void*> free[2];  // plain ones, timed ones
  };

  std::shared_ptr<Shelf> shelf_;
};

}  // namespace pipewright::exec::cuda
