#include "exec/collectives/threads.hpp"

#include "exec/base/buffer.hpp"
#include "exec/collectives/shared_group.hpp"

namespace pipewright::exec::collectives {

std::vector<std::unique_ptr<Group>> groups_of_threads(int members, const Look& look) {
  const auto memory = std::make_shared<std::vector<std::byte, AlignedAllocator<std::byte>>>(
      Board::bytes(members, 0));
  std::vector<std::unique_ptr<Group>> groups;
  for (int m = 0; m < members; ++m) {
    groups.push_back(std::make_unique<SharedGroup>(
        Board::Place{.memory = memory->data(), .member = m, .members = members, .look = look},
        memory));
  }
  return groups;
}

}  // namespace pipewright::exec::collectives
