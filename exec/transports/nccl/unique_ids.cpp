#include "exec/transports/nccl/unique_ids.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec::nccl {

std::vector<UniqueId> unique_ids(
    const CommunicatorPlan& plan, int process, const std::function<int(RankId)>& process_of,
    const std::function<UniqueId()>& make,
    const std::function<std::vector<PackedBytes>(PackedBytes)>& share) {
  const auto maker_of = [&](const Communicator& communicator) {
    return process_of(communicator.members.front());
  };
  Packer packer;
  for (const Communicator& communicator : plan.communicators) {
    if (maker_of(communicator) == process) packer.put<UniqueId>(make());
  }
  const std::vector<PackedBytes> all = share(packer.take());
  std::vector<Unpacker> unpackers;
  for (const PackedBytes& one : all) unpackers.emplace_back(one);
  std::vector<UniqueId> ids;
  for (const Communicator& communicator : plan.communicators) {
    const auto maker = static_cast<std::size_t>(maker_of(communicator));
    if (maker >= unpackers.size())
      throw RunError("no process has made the id of " + name_of(communicator));
    ids.push_back(unpackers[maker].get<UniqueId>());
  }
  return ids;
}

}  // namespace pipewright::exec::nccl
