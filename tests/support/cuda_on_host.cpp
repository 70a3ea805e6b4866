// The cases run on the host's table, with each order of what lies on its streams.
#include "tests/support/cuda_under_test.hpp"
#include "tests/support/host_cuda.hpp"

namespace pipewright::tests {

std::vector<NamedCuda> cudas_under_test(std::string&) {
  return {{"lazy", &host_cuda(HostOrder::Lazy)},
          {"eager", &host_cuda(HostOrder::Eager)},
          {"shuffled", &host_cuda(HostOrder::Shuffled)}};
}

}  // namespace pipewright::tests
