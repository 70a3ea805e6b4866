#include "core/costs/costs.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/int128.hpp"
#include "core/base/json_fields.hpp"
#include "core/costs/action_times.hpp"
#include "core/costs/collective_model.hpp"
#include "core/costs/time_rules.hpp"
#include "core/order/stages_by_rank.hpp"
#include "core/program/collectives.hpp"

namespace pipewright {
Nanoseconds StageCosts::*time_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::F:
      return &StageCosts::f;
    case ActionKind::I:
      return &StageCosts::i;
    case ActionKind::W:
      return &StageCosts::w;
    default:
      return &StageCosts::b;
  }
}

Bytes StageMemory::within(ActionKind kind) const {
  switch (kind) {
    case ActionKind::F:
      return in_f;
    case ActionKind::I:
      return in_i;
    case ActionKind::W:
      return in_w;
    case ActionKind::B:
      return in_b;
    default:
      return Bytes(0);
  }
}

CostTable CostTable::uniform(int stages, StageCosts each, Nanoseconds comm) {
  CostTable table;
  table.stages.assign(static_cast<std::size_t>(stages), each);
  table.every_route.latency = comm;
  return table;
}

StageMemory CostTable::memory_or_unit(int stage) const {
  if (memory.empty()) return {Bytes(1), Bytes(0), Bytes(-1), Bytes(0)};
  return memory[static_cast<std::size_t>(stage)];
}

bool CostTable::has_shared_links() const {
  for (const Link& link : links) {
    if (link.sharing != Sharing::None) return true;
  }
  return false;
}

bool CostTable::shares_by_flow() const {
  return std::any_of(links.begin(), links.end(),
                     [](const Link& link) { return link.sharing == Sharing::MaxMin; });
}

const RouteCosts& CostTable::route(RankId source_rank, RankId destination, int ranks) const {
  if (route_of_edge.empty() || source_rank.value < 0 || destination.value < 0) return every_route;
  const auto entry = [this](int rank) { return static_cast<std::size_t>(rank / ranks_of_entry); };
  const std::size_t from = entry(source_rank.value), to = entry(destination.value);
  if (ranks_of_replica == 0) return route_of_edge[from * entry(ranks) + to];
  const auto each = static_cast<std::size_t>(ranks_of_replica);
  if (from / each != to / each) return every_route;
  return route_of_edge[from % each * each + to % each];
}

Bytes CostTable::message_bytes(const Route& route) const {
  if (route.send_kind == ActionKind::NamedSend) return Bytes(route.named_bytes);
  // A gradient made by stage s crosses the boundary between s-1 and s.
  const bool forward = route.send_kind == ActionKind::SendF;
  const auto& sizes = forward ? activation_bytes : gradient_bytes;
  const int boundary = forward ? route.stage.value : route.stage.value - 1;
  if (boundary < 0 || boundary >= static_cast<int>(sizes.size())) return Bytes(0);
  return sizes[static_cast<std::size_t>(boundary)];
}

std::vector<std::int64_t> CostTable::message_bytes(const Program& program) const {
  std::vector<std::int64_t> bytes;
  bytes.reserve(program.routes.size());
  for (const Route& route : program.routes) bytes.push_back(message_bytes(route).value);
  return bytes;
}

Nanoseconds transfer_time(const CostTable& costs, const Route& r, int ranks, Factor f) {
  const RouteCosts& way = costs.route(r.source, r.destination, ranks);
  const Nanoseconds latency = scaled(way.latency, f);
  if (way.bytes_per_second <= 0) return latency;
  const double bytes = static_cast<double>(costs.message_bytes(r).value) * f.value();
  // The epsilon keeps an exact quotient from being rounded up by its last bit.
  const double moving = std::ceil(bytes / way.bytes_per_second * 1e9 - 1e-6);
  return latency + Nanoseconds(static_cast<std::int64_t>(moving));
}

Nanoseconds CostTable::transfer_time(const Route& r, int ranks) const {
  return pipewright::transfer_time(*this, r, ranks, {});
}

Nanoseconds CostTable::stage_time(ActionKind kind, StageId stage) const {
  if (static_cast<std::size_t>(stage.value) >= stages.size()) return Nanoseconds(0);
  if (!is_compute(kind)) return Nanoseconds(0);
  return stages[static_cast<std::size_t>(stage.value)].*time_of(kind);
}

Nanoseconds CostTable::compute_time(const Action& action, const Action* partner) const {
  if (partner != nullptr) return pair_time(action, *partner);
  if (actions != nullptr) {
    if (const auto own = actions->of(action)) return *own;
  }
  return stage_time(action.kind, action.stage);
}

Nanoseconds CostTable::pair_time(const Action& first, const Action& second) const {
  const auto own = own_pair_time(*this, first, second);
  return own ? *own : compute_time(first) + compute_time(second);
}

std::optional<Nanoseconds> own_pair_time(const CostTable& costs, const Action& first,
                                         const Action& second) {
  if (costs.actions != nullptr) {
    if (const auto own = costs.actions->of(first, &second)) return own;
  }
  if (!costs.pairs.empty()) {
    const bool forward_first = first.kind == ActionKind::F;
    const Action &forward = forward_first ? first : second,
                 &backward = forward_first ? second : first;
    const Nanoseconds time =
        costs.pairs[static_cast<std::size_t>(forward.stage.value) * costs.stages.size() +
                    static_cast<std::size_t>(backward.stage.value)];
    if (forward.kind == ActionKind::F && backward.kind == ActionKind::B && time.value > 0)
      return time;
  }
  return costs.overlapped_pair.value > 0 ? std::optional(costs.overlapped_pair) : std::nullopt;
}

/// ⌊c · up_to / of_all⌋ − ⌊c · before / of_all⌋ of the action's cost c.
Nanoseconds part_time(const PartWork& work, Nanoseconds action) {
  const Int128 whole = action.value;
  // Of a call it may be more than the whole, but no more than a file may say.
  const auto share = [&](std::int64_t weights) {
    return static_cast<std::int64_t>(
        std::min<Int128>(whole * weights / work.of_all, kMostNanoseconds));
  };
  return Nanoseconds(share(work.up_to) - share(work.before));
}

std::optional<std::int64_t> CostTable::collective_bytes(const Collective& collective) const {
  constexpr std::int64_t kNormBytes = 8;
  if (is_group_collective(collective.kind)) return collective.call_bytes;
  if (is_call(collective.kind)) return std::nullopt;
  const auto stage = static_cast<std::size_t>(collective.stage.value);
  if (collective.kind == ActionKind::ReduceTied)
    return tied_bytes.value > 0 ? std::optional(tied_bytes.value) : std::nullopt;
  if (collective.kind == ActionKind::ReduceNorm)
    return parameter_bytes.empty() ? std::nullopt : std::optional(kNormBytes);
  return stage < parameter_bytes.size() ? std::optional(parameter_bytes[stage].value)
                                        : std::nullopt;
}

Nanoseconds CostTable::ring_time(const Collective& collective, std::int64_t moved,
                                 int ranks) const {
  const RingWork work = ring_work(collective, moved);
  Nanoseconds latency;
  double rate = 0;  // of the slowest link; 0: bytes cost nothing
  for (std::size_t m = 0; m < collective.members.size(); ++m) {
    const RankId next = collective.members[(m + 1) % collective.members.size()].rank;
    const RouteCosts& way = route(collective.members[m].rank, next, ranks);
    latency = std::max(latency, way.latency);
    if (way.bytes_per_second > 0)
      rate = rate > 0 ? std::min(rate, way.bytes_per_second) : way.bytes_per_second;
  }
  const Nanoseconds time = latency * static_cast<int>(work.steps);
  if (rate <= 0) return time;
  const double bytes =
      static_cast<double>(work.bytes_times_n) / static_cast<double>(collective.size());
  return time + Nanoseconds(static_cast<std::int64_t>(std::ceil(bytes / rate * 1e9 - 1e-6)));
}

Nanoseconds CostTable::moving_time(const Collective& collective, std::int64_t moved,
                                   int ranks) const {
  return collectives != nullptr ? priced_time(*collectives, collective, moved)
                                : ring_time(collective, moved, ranks);
}

Nanoseconds CostTable::collective_time(const Collective& collective, int ranks) const {
  // Its members are parts of several micro-batches' actions: the stage's time counts.
  if (const PartWork& given = collective.given; given.up_to > 0)
    return part_time(given, stage_time(given.kind, given.stage));
  const auto stage = static_cast<std::size_t>(collective.stage.value);
  Nanoseconds time;
  if (has_stage(collective.kind) && stage < stages.size()) {
    time = collective.kind == ActionKind::ReduceGrad ? stages[stage].reduce : stages[stage].unshard;
  }
  const std::optional<std::int64_t> moved = collective_bytes(collective);
  if (!moved) return time;
  if (collective.block > 1) {
    Collective firsts = collective;
    std::erase_if(firsts.members, [&](const Collective::Member& member) {
      return member.rank.value % collective.block != 0;
    });
    return time + moving_time(firsts, *moved, ranks);
  }
  if (collective.groups == 1) return time + moving_time(collective, *moved, ranks);
  const GroupedSums sums = grouped_sums(collective, *moved);
  const auto longest = [&](const std::vector<Collective>& at_once, std::int64_t bytes) {
    Nanoseconds most;
    for (const Collective& one : at_once) most = std::max(most, moving_time(one, bytes, ranks));
    return most;
  };
  return time + longest(sums.inside, *moved) + longest(sums.across, sums.part_bytes);
}

Nanoseconds CostTable::update_time(RankId rank, std::span<const StageId> of_rank) const {
  if (actions != nullptr) {
    if (const auto own = actions->of_update(rank)) return *own;
  }
  Nanoseconds sum;
  for (const StageId stage : of_rank) {
    if (static_cast<std::size_t>(stage.value) < stages.size())
      sum += stages[static_cast<std::size_t>(stage.value)].opt;
  }
  return sum;
}

Nanoseconds CostTable::duration(const Program& program, InstructionId id) const {
  const Instruction& in = program.code[id];
  if (is_transfer(in.kind) || in.in_collective()) return Nanoseconds(0);
  if (in.kind == ActionKind::Opt) {
    const RankId rank = program.rank_of(id);
    return update_time(rank, program.placement.stages_of(rank));
  }
  if (in.kind == ActionKind::Part)
    return part_time(program.work(in), compute_time(*program.action_of_part(id)));
  if (!program.part_of.empty() && program.ends_parts(id)) return Nanoseconds(0);
  const Cell cell = program.cell(id);
  return compute_time(cell.action, cell.partner ? &*cell.partner : nullptr);
}

}  // namespace pipewright
