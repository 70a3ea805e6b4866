// The kernels on a GPU: tests/support/cuda_kernel_cases.cpp.
#include "tests/support/cuda_under_test.hpp"

namespace pipewright::tests {

const pipewright_cuda* cuda_under_test(std::string& why) {
  why = exec::cuda::why_no_gpu();
  return why.empty() ? &exec::cuda::load_module() : nullptr;
}

}  // namespace pipewright::tests
