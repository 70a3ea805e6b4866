// The GPU tests' cases run twice: on the host's table (tests/support/host_cuda.hpp) and, where
// there is one, on a GPU. Each binary says which.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/devices/cuda/module.hpp"

namespace pipewright::tests {

struct NamedCuda {
  std::string name;
  const pipewright_cuda* table = nullptr;
};
/// Empty where there is none; then `why` says why.
std::vector<NamedCuda> cudas_under_test(std::string& why);

/// Arrays that live on the device for the time of a test, and a stream. Copies wait.
class OnDevice {
 public:
  explicit OnDevice(const pipewright_cuda& cuda) : cuda_(cuda) {
    exec::cuda::require(cuda_, cuda_.enter(0, nullptr));
    stream = exec::cuda::required(cuda_, cuda_.stream(nullptr));
    event_ = exec::cuda::required(cuda_, cuda_.event(0));
  }
  ~OnDevice() {
    cuda_.release_stream(stream);
    cuda_.release_event(event_);
    for (void* one : memory_) cuda_.release(one);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  template <class T>
  T* up(const std::vector<T>& values) {
    auto* const at = static_cast<T*>(cuda_.allocate(values.size() * sizeof(T) + 1));
    memory_.push_back(exec::cuda::required(cuda_, at));
    exec::cuda::require(cuda_, cuda_.copy(stream, at, values.data(), values.size() * sizeof(T)));
    finish();
    return at;
  }
  template <class T>
  std::vector<T> down(const T* from, std::size_t n) {
    std::vector<T> values(n);
    exec::cuda::require(cuda_, cuda_.copy(stream, values.data(), from, n * sizeof(T)));
    finish();
    return values;
  }
  void finish() {
    exec::cuda::require(cuda_, cuda_.record(event_, stream));
    exec::cuda::require(cuda_, cuda_.wait_for_event(event_));
  }

  void* stream = nullptr;

 private:
  const pipewright_cuda& cuda_;
  void* event_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace pipewright::tests
