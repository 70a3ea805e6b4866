// Host memory that a GPU reads and writes by itself while the host goes on. Owned; freed with the
// object, which has to outlive the copies that were put on a stream.
#pragma once

#include <cstddef>
#include <memory>

#include "exec/devices/cuda/module.hpp"

namespace pipewright::exec::cuda {

template <class T>
class Pinned {
 public:
  Pinned() = default;
  Pinned(const pipewright_cuda& cuda, std::size_t size)
      : size_(size),
        memory_(required(cuda, cuda.allocate_pinned(size * sizeof(T) + 1)),
                [&cuda](void* at) { cuda.release_pinned(at); }) {}

  T* data() const { return static_cast<T*>(memory_.get()); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
  std::shared_ptr<void> memory_;
};

}  // namespace pipewright::exec::cuda
