#include "exec/collectives/process/job_groups.hpp"

#include <vector>

#include "core/base/error.hpp"
#include "exec/collectives/process/window_group.hpp"
#include "exec/collectives/process/wire_group.hpp"
#include "exec/transports/process/transport.hpp"

namespace pipewright::exec::collectives {

std::unique_ptr<Group> JobGroups::group(std::span<const RankId> ranks, const Look& look) {
  std::vector<int> processes;
  for (const RankId rank : ranks) processes.push_back(mpi::process_of_rank(rank));
  if (link_.are_on_one_machine(processes)) {
    try {
      return window_group(link_, processes, look);
    } catch (const MachineError&) {
      // All processes hear of it and come here.
    }
  }
  return wire_group(mail(), processes, look);
}

const std::shared_ptr<Mail>& JobGroups::mail() {
  if (mail_ == nullptr) mail_ = std::make_shared<Mail>(link_);
  return mail_;
}

}  // namespace pipewright::exec::collectives
