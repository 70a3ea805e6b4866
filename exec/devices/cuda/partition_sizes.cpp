#include "exec/devices/cuda/partition_sizes.hpp"

#include <algorithm>
#include <string>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {

int partition_sms(const SmFacts& facts, int ranks) {
  PIPEWRIGHT_ASSERT(ranks > 0, "a GPU without ranks");
  if (ranks == 1) return 0;
  if (facts.least <= 0) {
    throw MachineError("this driver cannot divide a GPU among " + std::to_string(ranks) +
                       " ranks (it needs CUDA 12.5 or newer); give each rank a GPU of its own");
  }
  const int alignment = std::max(1, facts.alignment);
  const int least = (facts.least + alignment - 1) / alignment * alignment;
  const int each = facts.sms / ranks / alignment * alignment;
  if (each >= least) return each;
  throw InputError("a GPU of " + std::to_string(facts.sms) + " SMs has room for " +
                   std::to_string(facts.sms / least) + " ranks of at least " +
                   std::to_string(least) + " SMs, not for " + std::to_string(ranks) +
                   "; use fewer ranks, or more GPUs");
}

}  // namespace pipewright::exec::cuda
