#include "exec/transport.hpp"

#include "core/error.hpp"

namespace pipewright::exec {

void Transport::announce(RankId, InstructionId) {
  throw InputError(
      "this transport cannot reduce the gradients of replicas; use --transport local, or a "
      "schedule "
      "without replicas");
}

}  // namespace pipewright::exec
