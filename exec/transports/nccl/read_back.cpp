#include "exec/transports/nccl/read_back.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/program/lower.hpp"
#include "exec/runtime/needs.hpp"

namespace pipewright::exec::nccl {
namespace {

bool is_transfer_call(const Call& call) {
  return call.kind == CallKind::Send || call.kind == CallKind::Recv;
}
bool is_group_mark(const Call& call) {
  return call.kind == CallKind::GroupStart || call.kind == CallKind::GroupEnd;
}
/// Whether it is one of the Program's instructions.
bool is_instruction(const Call& call) { return !is_group_mark(call) && !call.of_experts; }
bool is_collective_call(const Call& call) {
  return call.kind != CallKind::Compute && !is_transfer_call(call) && !is_group_mark(call);
}

std::string where(std::size_t rank, const Call& call) {
  return "rank " + std::to_string(rank) + "'s " + text_of(call);
}

// --- Who shares a line ---

/// Calls by what they would share under a channel; equal keys, one line.
using LineKey = std::pair<int, int>;

LineKey key_of(const Call& call, RankId peer, Channel channel) {
  if (channel == Channel::Rank) return {0, 0};
  if (channel == Channel::Pair) return {peer.value, 0};
  return {peer.value, call.kind == CallKind::Send ? 1 : 2};
}

/// Communicators and streams as nodes; a call joins its two, since it waits in the lines of both.
class Lines {
 public:
  void join(std::uint32_t communicator, std::uint32_t stream) {
    const auto a = root({0, communicator}), b = root({1, stream});
    if (a != b) parent_[a] = b;
  }
  std::pair<int, std::uint32_t> of(const Call& call) { return root({0, call.communicator}); }

 private:
  using Node = std::pair<int, std::uint32_t>;
  Node root(Node node) {
    while (true) {
      const auto at = parent_.try_emplace(node, node).first;
      if (at->second == node) return node;
      node = at->second;
    }
  }
  std::map<Node, Node> parent_;
};

RankId peer_of(const StepCalls& step, const Call& call) {
  const Communicator& communicator = step.plan.communicators[call.communicator];
  return communicator.members[static_cast<std::size_t>(call.peer)];
}

/// Whether the lines of each rank are those that the channel gives.
bool gives(const StepCalls& step, Channel channel) {
  for (const RankCalls& rank : step.ranks) {
    Lines lines;
    for (const Call& call : rank.calls) {
      if (is_transfer_call(call)) lines.join(call.communicator, call.stream);
    }
    std::set<std::pair<int, std::uint32_t>> met;
    std::map<LineKey, std::pair<int, std::uint32_t>> line_of_key;
    for (const Call& call : rank.calls) {
      if (!is_transfer_call(call)) continue;
      const auto line = lines.of(call);
      const auto [at, fresh] =
          line_of_key.emplace(key_of(call, peer_of(step, call), channel), line);
      if (at->second != line || (fresh && !met.insert(line).second)) return false;
    }
  }
  return true;
}

// --- The policy ---

struct Manner {
  bool grouped = false, on_compute_stream = false, on_others = false;
};

Manner manner_of(const StepCalls& step) {
  Manner manner;
  for (const RankCalls& rank : step.ranks) {
    bool in_group = false;
    for (const Call& call : rank.calls) {
      if (is_group_mark(call)) in_group = call.kind == CallKind::GroupStart;
      if (is_transfer_call(call)) {
        if (in_group) {
          manner.grouped = true;
        } else {
          (call.stream == 0 ? manner.on_compute_stream : manner.on_others) = true;
        }
      }
      // Those of all ranks are called on the compute stream whatever the policy is.
      if (is_collective_call(call) && !is_of_all(call.cell.action.kind))
        (call.stream == 0 ? manner.on_compute_stream : manner.on_others) = true;
    }
  }
  return manner;
}

/// Groups are one launch each, and what stands between two of them orders them.
void check_groups(const StepCalls& step, std::vector<std::string>& problems) {
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const auto& calls = step.ranks[r].calls;
    bool in_group = false;
    std::set<std::uint32_t> communicators;
    for (std::size_t k = 0; k < calls.size(); ++k) {
      const Call& call = calls[k];
      if (call.kind == CallKind::GroupStart) {
        if (k > 0 && calls[k - 1].kind == CallKind::GroupEnd)
          problems.push_back("rank " + std::to_string(r) +
                             " begins a group right after another: no run of the policy is cut so");
        in_group = true;
        communicators.clear();
      } else if (call.kind == CallKind::GroupEnd) {
        in_group = false;
      } else if (is_transfer_call(call)) {
        communicators.insert(call.communicator);
        if (!in_group) problems.push_back(where(r, call) + " stands outside of every group");
        if (communicators.size() == 2)
          problems.push_back(where(r, call) +
                             " is in a group over several communicators, which are launched one "
                             "after the other");
      }
    }
  }
}

/// Streams of the calls of groups, where several lines share one; else 0, for each has its own.
int device_queues_of(const StepCalls& step) {
  std::size_t queues = 0;
  bool are_shared = false;
  for (const RankCalls& rank : step.ranks) {
    std::set<std::uint32_t> streams;
    std::set<std::string> lines;
    for (const Call& call : rank.calls) {
      if (!call.part || call.part->is_computation() || call.stream == 0) continue;
      std::string line = line_of(call.part->call);
      if (line.empty()) continue;  // in a queue
      streams.insert(call.stream);
      lines.insert(std::move(line));
    }
    queues = std::max(queues, streams.size());
    are_shared |= lines.size() > streams.size();
  }
  return are_shared ? static_cast<int>(queues) : 0;
}

CommPolicy policy_of(const StepCalls& step, std::vector<std::string>& problems) {
  CommPolicy policy;
  policy.in_flight = step.in_flight;
  policy.device_queues = device_queues_of(step);
  const bool connected =
      std::any_of(step.plan.warm_ups.begin(), step.plan.warm_ups.end(), [&](const WarmUp& one) {
        return !one.edges.empty() &&
               step.plan.communicators[one.communicator].use != Communicator::Use::Group;
      });
  const bool transfers = !step.plan.of_route.empty();
  policy.connect = connected || !transfers ? Connect::Ready : Connect::FirstUse;
  const Manner manner = manner_of(step);
  if (manner.grouped) {
    policy.issue = Issue::Grouped;
    check_groups(step, problems);
    if (manner.on_others) problems.emplace_back("some calls are grouped and others have a stream");
    return policy;
  }
  if (manner.on_compute_stream) {
    policy.issue = Issue::Inline;
    if (manner.on_others)
      problems.emplace_back("some calls are on the stream that computes and others are not");
    return policy;
  }
  for (const Channel channel : {Channel::Edge, Channel::Pair, Channel::Rank}) {
    policy.channel = channel;
    if (gives(step, channel)) return policy;
  }
  problems.emplace_back("the communicators and streams make lines that no channel gives");
  return policy;
}

// --- The order ---

/// Actions whose parts are called, until the action itself is: then they are what actions of its
/// stage and kind consist of, on every rank the same.
class PartsOfActions {
 public:
  explicit PartsOfActions(std::vector<std::string>& problems) : problems_(problems) {}

  void add(const Action& owner, const pipewright::Part& part) {
    under_way_[key_of(owner)].push_back(part);
  }
  void end(std::size_t rank, const Call& call) {
    for (const auto& action : {std::optional(call.cell.action), call.cell.partner}) {
      const auto own = action ? under_way_.extract(key_of(*action)) : Parts::node_type();
      if (own.empty()) continue;
      const auto [known, is_first] = all_.emplace(own.key(), own.mapped());
      if (!is_first && known->second != own.mapped())
        problems_.push_back(where(rank, call) +
                            " has other parts than an action of its stage and kind before it");
    }
  }
  std::vector<ActionParts> all() const {
    std::vector<ActionParts> list;
    for (const auto& [key, parts] : all_) list.push_back({key.first, key.second, parts});
    return list;
  }

 private:
  using Parts = std::map<std::pair<StageId, ActionKind>, std::vector<pipewright::Part>>;
  static Parts::key_type key_of(const Action& action) { return {action.stage, action.kind}; }

  std::vector<std::string>& problems_;
  Parts under_way_, all_;
};

/// Members of the groups that are no axis of the devices.
std::vector<Group> groups_of(const StepCalls& step) {
  std::vector<Group> groups;
  for (const Communicator& one : step.plan.communicators) {
    if (one.use == Communicator::Use::Group && !span_of(step.devices, one.group))
      groups.push_back({one.group, one.members});
  }
  return groups;
}

Order order_of(const StepCalls& step, std::vector<std::string>& problems) {
  Order order;
  CallTable table;
  PartsOfActions parts(problems);
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    auto& row = order.ranks.emplace_back();
    for (const Call& call : step.ranks[r].calls) {
      if (!is_instruction(call)) continue;
      if (call.part_of) {
        parts.add(*call.part_of, call.part.value());
        continue;
      }
      row.push_back(call.cell);
      if (call.part) row.back().action = table.action_of(call.part->call);
      parts.end(r, call);
    }
  }
  order.calls = table.take();
  order.groups = groups_of(step);
  order.parts = parts.all();
  order.devices = step.devices;
  order.sharding = step.sharding;
  const OrderExtent extent = extent_of(order);
  order.micro_batches = extent.micro_batches;
  order.placement = placement_of_rows(order, extent.stages, extent.micro_batches);
  return order;
}

// --- Peers and matching ---

/// NCCL matches within a communicator: so every directed edge has one, and it is the tensor's.
void check_peers(const StepCalls& step, const Program& program,
                 std::vector<std::string>& problems) {
  std::map<std::pair<RankId, RankId>, std::uint32_t> communicator_of;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    InstructionId id = program.rank_begin[r];
    for (const Call& call : step.ranks[r].calls) {
      if (!is_instruction(call)) continue;
      const Instruction& in = program.code[id++];
      if (!is_transfer_call(call)) continue;
      const Route& route = program.routes[in.route];
      const bool sends = call.kind == CallKind::Send;
      const RankId self(static_cast<std::int64_t>(r)), peer = peer_of(step, call);
      if (peer != (sends ? route.destination : route.source))
        problems.push_back(where(r, call) + " is called with rank " + std::to_string(peer.value) +
                           ", which is not where its tensor goes or comes from");
      if (step.plan.communicators[call.communicator].index_of(self) < 0)
        problems.push_back(where(r, call) + " is called on " +
                           name_of(step.plan.communicators[call.communicator]) +
                           ", of which its rank is no member");
      const auto edge = sends ? std::pair(self, peer) : std::pair(peer, self);
      const auto [at, fresh] = communicator_of.emplace(edge, call.communicator);
      if (!fresh && at->second != call.communicator)
        problems.push_back(where(r, call) + " is on another communicator than the transfers of " +
                           "the same two ranks before it");
    }
  }
}

/// The k-th call on a communicator of each member belong together, so they have to be for the same.
void check_collectives(const StepCalls& step, const Program& program,
                       std::vector<std::string>& problems) {
  using What = std::tuple<CallKind, std::int64_t, std::uint32_t>;  // and the Program's collective
  std::map<std::pair<std::uint32_t, std::size_t>, What> first;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    std::map<std::uint32_t, std::size_t> turn;
    InstructionId id = program.rank_begin[r];
    for (const Call& call : step.ranks[r].calls) {
      if (is_group_mark(call)) continue;
      const Instruction& in = program.code[call.of_experts ? id - 1 : id++];
      if (!is_collective_call(call) || call.kind == CallKind::Hosts) continue;
      if (!in.in_collective()) {
        problems.push_back(where(r, call) + " is called as a collective and nobody joins it");
        continue;
      }
      const Communicator& communicator = step.plan.communicators[call.communicator];
      std::vector<RankId> members;
      for (const auto& member : program.collectives[in.route].members)
        members.push_back(member.rank);
      if (call.of_experts ? !std::ranges::includes(members, communicator.members)
                          : members != communicator.members)
        problems.push_back(where(r, call) + " is called on " + name_of(communicator) +
                           ", which are not the ranks that it belongs to");
      const What what{call.kind, call.count, in.route};
      const auto [at, fresh] =
          first.emplace(std::pair(call.communicator, turn[call.communicator]++), what);
      const auto [kind, count, index] = at->second;
      const bool is_known = count > 0 && call.count > 0;
      const bool alike = kind == call.kind && (count == call.count || !is_known);
      if (fresh || (alike && index == in.route)) continue;
      problems.push_back(where(r, call) +
                         (alike ? " meets a call that is for another sum on "
                                : " meets another kind or size of call on ") +
                         name_of(communicator));
    }
  }
}

// --- Events ---

/// By call of a rank: up to which place of each stream everything has ended when it starts.
class Ended {
 public:
  explicit Ended(const RankCalls& rank)
      : rank_(rank), last_(rank.streams.size()), until_(rank.calls.size()) {}

  /// False where a wait is for a call that is not made yet.
  bool add(std::uint32_t place) {
    const Call& call = rank_.calls[place];
    auto& until = until_[place];
    until.assign(rank_.streams.size(), 0);
    bool recorded = true;
    if (last_[call.stream]) take(until, *last_[call.stream]);
    for (const std::uint32_t wait : call.waits_for) {
      if (wait >= place || is_group_mark(rank_.calls[wait])) {
        recorded = false;
      } else {
        take(until, wait);
      }
    }
    last_[call.stream] = place;
    return recorded;
  }
  bool orders(std::uint32_t place, std::uint32_t before) const {
    return before < until_[place][rank_.calls[before].stream];
  }

 private:
  void take(std::vector<std::uint32_t>& until, std::uint32_t place) const {
    for (std::size_t s = 0; s < until.size(); ++s) until[s] = std::max(until[s], until_[place][s]);
    auto& own = until[rank_.calls[place].stream];
    own = std::max(own, place + 1);
  }

  const RankCalls& rank_;
  std::vector<std::optional<std::uint32_t>> last_;  // by stream
  std::vector<std::vector<std::uint32_t>> until_;   // by call, by stream
};

void check_events(const StepCalls& step, const Program& program,
                  std::vector<std::string>& problems) {
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const RankCalls& rank = step.ranks[r];
    const auto needs = needs_of(program, RankId(static_cast<std::int64_t>(r)));
    const InstructionId begin = program.rank_begin[r];
    std::vector<std::uint32_t> last;  // by instruction of the list
    for (std::uint32_t k = 0; k < rank.calls.size(); ++k) {
      if (is_instruction(rank.calls[k])) last.push_back(k);
      if (rank.calls[k].of_experts) last.back() = k;
    }
    Ended ended(rank);
    std::size_t i = 0;
    for (std::uint32_t place = 0; place < rank.calls.size(); ++place) {
      const Call& call = rank.calls[place];
      if (is_group_mark(call)) continue;
      if (!ended.add(place))
        problems.push_back(where(r, call) + " waits for an event that is not recorded yet");
      if (call.of_experts) continue;
      for (const InstructionId need : needs[i++]) {
        const std::uint32_t before = last[need - begin];
        if (before >= place || !ended.orders(place, before))
          problems.push_back(where(r, call) + " may start before " + text_of(rank.calls[before]) +
                             ", which it needs, has ended");
      }
    }
  }
}

}  // namespace

ReadBack read_back(const StepCalls& step, bool fragment) {
  ReadBack result;
  result.order = order_of(step, result.problems);
  const CommPolicy policy = policy_of(step, result.problems);
  result.program = lower(result.order, policy, {.fragment = fragment});
  check_peers(step, result.program, result.problems);
  check_collectives(step, result.program, result.problems);
  check_events(step, result.program, result.problems);
  return result;
}

}  // namespace pipewright::exec::nccl
