#include "planner/bounds/wires.hpp"

namespace pipewright::planner {

Sending sending_under(const CommPolicy& policy) {
  const auto meets = [&](const Protocol& protocol) {
    return protocol.kind == Protocol::Kind::Rendezvous || policy.buffers == Buffers::Registered;
  };
  // A transfer that meets its receive stays at the head of its queue, or of the compute lane.
  const bool has_queue = policy.issue != Issue::Stream || policy.channel != Channel::Tag;
  return has_queue && meets(policy.send_f) && meets(policy.send_b) ? Sending::InTurn
                                                                   : Sending::Shared;
}

}  // namespace pipewright::planner
