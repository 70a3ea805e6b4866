// The operators of one rank on a GPU, or what stands for one, against the CPU's: in exact numerics
// bit for bit, outside of them within rounding.
#pragma once

#include <cmath>
#include <vector>

#include "exec/devices/cuda/queue_ops.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {

/// A rank's operators in one precision, and arrays of its numbers.
class RankOps {
 public:
  RankOps(const pipewright_cuda& cuda, exec::cuda::Precision precision)
      : queue_(cuda, {0, nullptr, precision, 0}), ops_(queue_, unwritten_) {}

  exec::TensorOps& ops() { return ops_; }
  exec::Buffer up(const Floats& values) {
    exec::Buffer floats = ops_.take_floats(values.size());
    queue_.copy(floats.at(), values.data(), values.size() * sizeof(float));
    finish();
    if (queue_.number_bytes() == sizeof(float)) return floats;
    exec::Buffer numbers = ops_.take(values.size());
    queue_.run(queue_.kernels().round, values.size(), floats.floats(), numbers.at());
    return numbers;
  }
  exec::Buffer nothing(std::size_t n) { return up(Floats(n, NAN)); }
  exec::Buffer floats(std::size_t n) { return ops_.take_floats(n); }
  Floats down(const exec::Buffer& from, std::size_t n) {
    if (queue_.number_bytes() == sizeof(float)) return copied<float>(from, n);
    const auto narrow = copied<exec::cuda::Bfloat16>(from, n);
    return {narrow.begin(), narrow.end()};
  }
  template <class T>
  std::vector<T> copied(const exec::Buffer& from, std::size_t n) {
    std::vector<T> values(n);
    queue_.copy(values.data(), from.at(), n * sizeof(T));
    finish();
    return values;
  }

 private:
  void finish() {
    queue_.finish(queue_.record(queue_.computing()), [] {});
  }

  exec::cuda::Queue queue_;
  exec::cuda::UnwrittenGradients unwritten_;
  exec::cuda::QueueOps ops_;
};

class CudaOperators : public CudaKernels {
 protected:
  void expect_alike(const Floats& found, const Floats& expected, const char* what) const {
    if (precision_ == exec::cuda::Precision::Exact) return expect_same_bits(found, expected, what);
    double apart = 0, whole = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto e = static_cast<double>(expected[i]), f = static_cast<double>(found[i]);
      apart += (f - e) * (f - e);
      whole += e * e;
    }
    const double most = precision_ == exec::cuda::Precision::Bfloat16 ? 2e-2 : 2e-6;
    EXPECT_LE(std::sqrt(apart), most * std::sqrt(whole)) << what;
  }
  exec::cuda::Precision precision_ = exec::cuda::Precision::Exact;
};

}  // namespace pipewright::tests
