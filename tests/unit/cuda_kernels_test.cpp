// The kernels' own text, compiled for the CPU: tests/support/cuda_kernel_cases.cpp.
#include "tests/support/cuda_under_test.hpp"
#include "tests/support/host_cuda.hpp"

namespace pipewright::tests {

const pipewright_cuda* cuda_under_test(std::string&) { return &host_cuda(HostOrder::Lazy); }

}  // namespace pipewright::tests
