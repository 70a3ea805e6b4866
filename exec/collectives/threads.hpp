// Groups whose members are threads of one process: they read one another's arrays where they lie.
// Each is a Posting, too (exec/collectives/posting.hpp).
#pragma once

#include <memory>
#include <vector>

#include "exec/collectives/group.hpp"

namespace pipewright::exec::collectives {

/// One for each member. They may be used and dropped in any order, each by one thread at a time; a
/// member that is dropped while others wait for it ends their calls.
std::vector<std::unique_ptr<Group>> groups_of_threads(int members, const Look& look = {});

}  // namespace pipewright::exec::collectives
