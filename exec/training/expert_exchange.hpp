// The exchanges of rows between ranks that hold different experts (exec/layers/expert_group.hpp),
// over the group of those ranks.
#pragma once

#include "exec/collectives/group.hpp"
#include "exec/layers/expert_group.hpp"

namespace pipewright::exec {

/// Returns when the rows that come in are there. All members call it for the same exchange. Throws
/// RunError as the group does.
void bring_together(ExchangeOfMembers& exchange, collectives::Group& group);

}  // namespace pipewright::exec
