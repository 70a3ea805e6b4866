// Which of the batches that an order names are one operation under its policy (docs/semantics.md
// §2.4).
#include <algorithm>
#include <optional>

#include "core/program/lowering.hpp"

namespace pipewright::lowering {
namespace {

using Joined = std::pair<InstructionId, std::uint32_t>;

/// Of a batch, what one communicator carries, where it both sends and receives. `wanted`: of
/// its SENDs; nullopt: all.
std::vector<InstructionId> mixed_part(const Program& program, std::span<const Joined> batch,
                                      std::optional<ActionKind> wanted) {
  std::vector<InstructionId> part;
  bool sends = false, receives = false;
  for (const auto& [id, number] : batch) {
    const ActionKind kind = program.code[id].kind;
    if (wanted && send_kind(kind) != *wanted) continue;
    part.push_back(id);
    (is_send(kind) ? sends : receives) = true;
  }
  if (!sends || !receives) part.clear();
  return part;
}

}  // namespace

void join_batches(Program& program) {
  if (program.policy.batches != Batches::Mixed) return;
  const bool by_direction =
      program.policy.issue == Issue::Stream && program.policy.channel == Channel::Direction;
  std::vector<Joined> kept;
  std::uint32_t number = 0;
  const auto keep = [&](const std::vector<InstructionId>& part) {
    for (const InstructionId id : part) kept.emplace_back(id, number);
    number += part.empty() ? 0 : 1;
  };
  const std::span<const Joined> all = program.joined;
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].second == all[begin].second) ++end;
    const auto batch = all.subspan(begin, end - begin);
    if (!by_direction) {
      keep(mixed_part(program, batch, std::nullopt));
      continue;
    }
    for (const ActionKind kind : {ActionKind::SendF, ActionKind::SendB, ActionKind::NamedSend})
      keep(mixed_part(program, batch, kind));
  }
  std::sort(kept.begin(), kept.end());
  program.joined = std::move(kept);
}

}  // namespace pipewright::lowering
