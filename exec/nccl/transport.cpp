#include "exec/nccl/transport.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace pipewright::exec::nccl {
namespace {

constexpr std::int64_t kPollNs = 1'000'000;

std::vector<UniqueId> fresh_ids(const pipewright_nccl& nccl, const CommunicatorPlan& plan) {
  std::vector<UniqueId> ids(plan.communicators.size());
  for (UniqueId& id : ids) require(nccl, nccl.unique_id(id.data()), "making a unique id");
  return ids;
}

}  // namespace

NcclTransport::NcclTransport(const pipewright_nccl& nccl, const Program& program,
                             const CostTable& costs)
    : program_(program),
      plan_(communicators_of(program)),
      inner_(program, local::real_messages(program, costs)),
      times_(program.code.size()),
      ids_(fresh_ids(nccl, plan_)) {
  for (int r = 0; r < program.ranks(); ++r)
    links_.push_back(std::make_unique<RankLink>(nccl, program, plan_, RankId(r),
                                                [this] { throw_if_stopped(); }));
}

NcclTransport::~NcclTransport() = default;

void NcclTransport::attach(RankId rank, cuda::Device& device) {
  link(rank).join({&device.queue(), &device.timeline(),
                   [&device](InstructionId recv) { return device.message_bytes(recv); }},
                  ids_);
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
  if (!is_transfer(program_.code[end].kind)) return inner_.issue(rank, end, std::move(data));
  throw_if_stopped();
  link(rank).issue(end, std::move(data));
}

void NcclTransport::provide(RankId rank, InstructionId send, PayloadPtr data) {
  throw_if_stopped();
  link(rank).provide(send, std::move(data));
}

/// Nobody but the rank itself could make the call that it waits for.
void NcclTransport::wait(RankId rank, InstructionId id) {
  if (!is_transfer(program_.code[id].kind)) return inner_.wait(rank, id);
  throw_if_stopped();
  while (!link(rank).is_called(id)) inner_.sleep_until(rank, now() + kPollNs);
}

PayloadPtr NcclTransport::take(RankId rank, InstructionId recv) { return link(rank).take(recv); }

void NcclTransport::stop() noexcept {
  stopped_.store(true);
  for (const auto& link : links_) link->abort();
  inner_.stop();
}

std::uint64_t NcclTransport::ended_count() const {
  std::uint64_t count = inner_.ended_count();
  for (const auto& link : links_) count += link->ended_count();
  return count;
}

void NcclTransport::report(Timeline& timeline, Progress& progress) const {
  inner_.report(timeline, progress);
  bool is_over = true;
  for (InstructionId id = 0; id < program_.code.size(); ++id) {
    if (!is_transfer(program_.code[id].kind)) continue;
    const auto rank = static_cast<std::size_t>(program_.rank_of(id).value);
    progress.ended[id] = links_[rank]->has_ended(id) ? 1 : 0;
    is_over = is_over && progress.ended[id] != 0;
  }
  if (is_over) times_.write(timeline);  // else they are those of an earlier step
}

}  // namespace pipewright::exec::nccl
