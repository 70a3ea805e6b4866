#include "exec/runtime/transport.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace {

[[noreturn]] void refuse_replicas() {
  throw InputError(
      "this transport cannot reduce the gradients of replicas; use --transport local, or a "
      "schedule without replicas");
}

}  // namespace

void Transport::contribute(RankId, InstructionId, PartPtr) { refuse_replicas(); }

std::vector<PartPtr> Transport::gathered(RankId, InstructionId) { refuse_replicas(); }

}  // namespace pipewright::exec
