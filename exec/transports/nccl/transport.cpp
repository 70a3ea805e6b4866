#include "exec/transports/nccl/transport.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "exec/runtime/peers.hpp"

namespace pipewright::exec::nccl {
namespace {

constexpr std::int64_t kPollNs = 1'000'000;

/// A process has one rank, or all of them.
std::vector<UniqueId> ids_of(const pipewright_nccl& nccl, const CommunicatorPlan& plan,
                             Peers* peers) {
  const auto make = [&] {
    UniqueId id{};
    require(nccl, nccl.unique_id(id.data()), "making a unique id");
    return id;
  };
  if (peers == nullptr) {
    return unique_ids(
        plan, 0, [](RankId) { return 0; }, make,
        [](PackedBytes own) { return std::vector<PackedBytes>{std::move(own)}; });
  }
  return unique_ids(
      plan, peers->process(), [](RankId rank) { return static_cast<int>(rank.value); }, make,
      [peers](PackedBytes own) { return peers->share(std::move(own)); });
}

}  // namespace

NcclTransport::NcclTransport(const pipewright_nccl& nccl, const Program& program,
                             const CostTable& costs, std::unique_ptr<Transport> own,
                             Transport* inner)
    : program_(program),
      plan_(communicators_of(program, costs)),
      own_(std::move(own)),
      inner_(own_ != nullptr ? *own_ : *inner),
      times_(program.code.size()),
      ids_(ids_of(nccl, plan_, inner_.peers())),
      links_(static_cast<std::size_t>(program.ranks())) {
  for (const RankId rank : inner_.local_ranks()) {
    links_[static_cast<std::size_t>(rank.value)] =
        std::make_unique<RankLink>(nccl, program, plan_, rank, [this] { throw_if_stopped(); });
  }
}

NcclTransport::NcclTransport(const pipewright_nccl& nccl, const Program& program,
                             const CostTable& costs)
    : NcclTransport(
          nccl, program, costs,
          std::make_unique<local::LocalTransport>(program, local::real_messages(program, costs)),
          nullptr) {}

NcclTransport::NcclTransport(const pipewright_nccl& nccl, const Program& program,
                             const CostTable& costs, Transport& inner)
    : NcclTransport(nccl, program, costs, nullptr, &inner) {}

NcclTransport::~NcclTransport() = default;

void NcclTransport::attach(RankId rank, cuda::Device& device) {
  link(rank).join({&device.queue(), &device.timeline(),
                   [&device](InstructionId recv) { return device.message_bytes(recv); },
                   [&device] { device.enter_step(); }},
                  ids_);
  device.tell_way([this, rank](cuda::StepWay way) { link(rank).goes(way); });
  device.note_transport_bytes(link(rank).library_bytes());
  device.leave_sums_to_transport();
}

void NcclTransport::sleep_until(RankId rank, std::int64_t deadline) {
  link(rank).look_at_communicators();
  inner_.sleep_until(rank, deadline);
}

void NcclTransport::meet(RankId rank, const std::function<void()>& between) {
  inner_.meet(rank, between);
  link(rank).begin_step();
}

void NcclTransport::issue(RankId rank, InstructionId end, PayloadPtr data) {
  throw_if_stopped();
  const bool is_mine = is_nccls(rank, end);
  const ActionKind kind = program_.code[end].kind;
  if (is_transfer(kind)) return link(rank).issue(end, std::move(data));
  if (!is_mine) inner_.issue(rank, end, std::move(data));
  if (is_mine || !is_call(kind)) link(rank).issue_sum(end);
}

void NcclTransport::contribute(RankId rank, InstructionId member, PartPtr part) {
  if (auto on_gpu = std::dynamic_pointer_cast<const cuda::DevicePart>(part))
    return link(rank).contribute(member, std::move(on_gpu));
  inner_.contribute(rank, member, std::move(part));
}

std::vector<PartPtr> NcclTransport::gathered(RankId rank, InstructionId member) {
  if (is_nccls(rank, member)) return {link(rank).sum(member)};
  return inner_.gathered(rank, member);
}

void NcclTransport::provide(RankId rank, InstructionId send, PayloadPtr data) {
  throw_if_stopped();
  link(rank).provide(send, std::move(data));
}

/// Nobody but the rank itself could make the call that it waits for.
void NcclTransport::wait(RankId rank, InstructionId id) {
  if (!is_nccls(rank, id)) return inner_.wait(rank, id);
  throw_if_stopped();
  link(rank).close_batch();
  if (program_.code[id].kind == ActionKind::AllToAll) link(rank).finish_counting();
  while (!link(rank).is_called(id)) {
    if (link(rank).has_counted()) link(rank).finish_counting();
    inner_.sleep_until(rank, now() + kPollNs);
  }
}

PayloadPtr NcclTransport::take(RankId rank, InstructionId recv) { return link(rank).take(recv); }

void NcclTransport::stop() noexcept {
  stopped_.store(true);
  for (const auto& link : links_) {
    if (link != nullptr) link->abort();
  }
  inner_.stop();
}

std::uint64_t NcclTransport::ended_count() const {
  std::uint64_t count = inner_.ended_count();
  for (const auto& link : links_) {
    if (link != nullptr) count += link->ended_count();
  }
  return count;
}

void NcclTransport::report(Timeline& timeline, Progress& progress) const {
  inner_.report(timeline, progress);
  bool is_over = true;
  for (InstructionId id = 0; id < program_.code.size(); ++id) {
    const RankId owner = program_.rank_of(id);
    const auto rank = static_cast<std::size_t>(owner.value);
    if (links_[rank] == nullptr || !is_nccls(owner, id)) continue;
    progress.ended[id] = links_[rank]->has_ended(id) ? 1 : 0;
    is_over = is_over && progress.ended[id] != 0;
  }
  if (is_over) times_.write(timeline);  // else they are those of an earlier step
}

}  // namespace pipewright::exec::nccl
