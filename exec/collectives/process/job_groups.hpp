// The groups of a job's ranks, one a process: through windows of memory where the members are on
// one machine that lets them share it, over the job's wire everywhere else. Every process asks for
// the same groups in the same order; a run of ranks may be under way on the link
// (exec/transports/process/transport.hpp).
#pragma once

#include <memory>
#include <span>

#include "exec/collectives/group.hpp"
#include "exec/collectives/process/letters.hpp"
#include "exec/transports/process/link.hpp"

namespace pipewright::exec::collectives {

class JobGroups {
 public:
  /// The link must outlive it, and all its groups.
  explicit JobGroups(mpi::Link& link) : link_(link) {}

  /// Null where this process's rank is not among them. Throws RunError if a process is gone.
  std::unique_ptr<Group> group(std::span<const RankId> ranks, const Look& look);
  std::unique_ptr<Letters> letters() { return std::make_unique<Letters>(mail()); }

 private:
  const std::shared_ptr<Mail>& mail();

  mpi::Link& link_;
  std::shared_ptr<Mail> mail_;  // once it is needed
};

}  // namespace pipewright::exec::collectives
