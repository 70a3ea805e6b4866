// The cases run on this machine's GPUs.
#include "tests/support/cuda_under_test.hpp"

namespace pipewright::tests {

std::vector<NamedCuda> cudas_under_test(std::string& why) {
  why = exec::cuda::why_no_gpu();
  if (!why.empty()) return {};
  return {{"gpu", &exec::cuda::load_module()}};
}

}  // namespace pipewright::tests
