#include "exec/transports/nccl/calls.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/error.hpp"
#include "core/order/element_type.hpp"
#include "exec/runtime/needs.hpp"

namespace pipewright::exec::nccl {
namespace {

constexpr std::uint32_t kNotCalled = std::numeric_limits<std::uint32_t>::max();

/// The order in which the host of a rank makes its calls: receives under at-start, then the list,
/// but nothing before what it waits for.
class HostOrder {
 public:
  HostOrder(const Program& program, const LaneTable& lanes, RankId rank,
            const std::vector<std::vector<InstructionId>>& needs)
      : program_(program),
        needs_(needs),
        begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
        end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
        before_(end_ - begin_, kNoInstruction),
        state_(end_ - begin_, State::Open) {
    for (std::uint32_t lane = lanes.rank_lane_begin[static_cast<std::size_t>(rank.value)];
         lane < lanes.rank_lane_begin[static_cast<std::size_t>(rank.value) + 1]; ++lane) {
      InstructionId last = kNoInstruction;
      for (const InstructionId id : lanes.instructions_of(lane)) {
        before_[id - begin_] = last;
        last = id;
      }
    }
  }

  /// Where there is no such order: the list's own, and in `problems` why. The Program gets stuck
  /// either way.
  std::vector<InstructionId> run(std::vector<std::string>& problems) {
    const std::vector<InstructionId> listed = listed_order();
    for (const InstructionId id : listed) call(id, problems);
    return problems.empty() ? std::move(order_) : listed;
  }

 private:
  enum class State : std::uint8_t { Open, Wanted, Called };

  std::vector<InstructionId> listed_order() const {
    std::vector<InstructionId> listed;
    for (const bool at_start : {true, false}) {
      for (InstructionId id = begin_; id < end_; ++id) {
        if (program_.code[id].has(Instruction::kAtStart) == at_start) listed.push_back(id);
      }
    }
    return listed;
  }

  State& state(InstructionId id) { return state_[id - begin_]; }

  /// What has to be called first and is not yet.
  std::optional<InstructionId> missing(InstructionId id) {
    const InstructionId before = before_[id - begin_];
    if (before != kNoInstruction && state(before) != State::Called) return before;
    for (const InstructionId need : needs_[id - begin_]) {
      if (state(need) != State::Called) return need;
    }
    return std::nullopt;
  }

  void call(InstructionId first, std::vector<std::string>& problems) {
    if (state(first) == State::Called) return;
    std::vector<InstructionId> stack = {first};
    state(first) = State::Wanted;
    while (!stack.empty()) {
      const InstructionId id = stack.back();
      const std::optional<InstructionId> need = missing(id);
      if (need && state(*need) == State::Open) {
        state(*need) = State::Wanted;
        stack.push_back(*need);
        continue;
      }
      if (need)
        problems.push_back(program_.text(id) + " of rank " +
                           std::to_string(program_.rank_of(id).value) + " waits for " +
                           program_.text(*need) + ", which waits for it");
      state(id) = State::Called;
      order_.push_back(id);
      stack.pop_back();
    }
  }

  const Program& program_;
  const std::vector<std::vector<InstructionId>>& needs_;
  const InstructionId begin_, end_;
  std::vector<InstructionId> before_;  // in its lane
  std::vector<State> state_;
  std::vector<InstructionId> order_;
};

class Calls {
 public:
  Calls(const Program& program, const CostTable& costs, const ByHosts& hosts)
      : program_(program),
        costs_(costs),
        hosts_(hosts),
        lanes_(lane_table(program)),
        message_bytes_(costs.message_bytes(program)) {
    step_.plan = communicators_of(program, costs);
    step_.devices = program.devices;
    step_.sharding = program.sharding;
    step_.in_flight = program.policy.issue == Issue::Stream ? program.policy.in_flight : 0;
  }

  StepCalls run() {
    for (int r = 0; r < program_.ranks(); ++r) list(RankId(r));
    return std::move(step_);
  }

 private:
  bool is_grouped(InstructionId id) const {
    return program_.policy.issue == Issue::Grouped && is_transfer(program_.code[id].kind);
  }

  void list(RankId rank) {
    RankCalls& list = step_.ranks.emplace_back();
    rank_ = rank;
    begin_ = program_.rank_begin[static_cast<std::size_t>(rank.value)];
    const std::uint32_t first_lane = lanes_.rank_lane_begin[static_cast<std::size_t>(rank.value)];
    const std::uint32_t lanes =
        program_.policy.issue == Issue::Stream
            ? lanes_.rank_lane_begin[static_cast<std::size_t>(rank.value) + 1] - first_lane
            : 1;
    for (std::uint32_t lane = 0; lane < lanes; ++lane)
      list.streams.push_back(lane_name(program_, lanes_, first_lane + lane));
    seen_.assign(lanes, std::vector<std::uint32_t>(lanes, 0));

    const auto needs = needs_of(program_, rank);
    const auto order = HostOrder(program_, lanes_, rank, needs).run(list.problems);
    place_of_.assign(order.size(), kNotCalled);
    for (std::size_t k = 0; k < order.size(); ++k) {
      const bool grouped = is_grouped(order[k]);
      if (grouped && (k == 0 || !is_grouped(order[k - 1])))
        list.calls.push_back({.kind = CallKind::GroupStart, .cell = {}, .waits_for = {}});
      add(list, order[k], needs[order[k] - begin_]);
      if (grouped && (k + 1 == order.size() || !is_grouped(order[k + 1])))
        list.calls.push_back({.kind = CallKind::GroupEnd, .cell = {}, .waits_for = {}});
    }
  }

  void add(RankCalls& list, InstructionId id, const std::vector<InstructionId>& needs) {
    Call call = call_of(id);
    for (const InstructionId need : needs) {
      const std::uint32_t place = place_of_[need - begin_];
      if (place == kNotCalled) continue;  // said in `problems`
      const std::uint32_t other = list.calls[place].stream;
      // What the stream has waited for before it need not wait for again; a stream's calls end in
      // their order.
      if (other == call.stream || place < seen_[call.stream][other]) continue;
      seen_[call.stream][other] = place + 1;
      call.waits_for.push_back(place);
    }
    drop_superseded(list, call.waits_for);
    const std::optional<Call> experts = call_of_experts(call);
    list.calls.push_back(std::move(call));
    if (experts) list.calls.push_back(*experts);
    place_of_[id - begin_] = static_cast<std::uint32_t>(list.calls.size()) - 1;
  }

  /// How many bytes of a stage are its experts', the costs do not say.
  std::optional<Call> call_of_experts(Call& all) const {
    const Instruction& in = program_.code[all.instruction];
    if (all.kind == CallKind::Hosts || !in.in_collective()) return std::nullopt;
    const auto& of_experts = step_.plan.of_experts[in.route];
    if (of_experts.empty()) return std::nullopt;
    all.count = 0;
    const int own = step_.plan.communicators[all.communicator].index_of(rank_);
    const std::uint32_t holders = of_experts[static_cast<std::size_t>(own)];
    if (holders == kNoCommunicator) return std::nullopt;
    Call experts = all;
    experts.communicator = holders;
    experts.of_experts = true;
    experts.waits_for.clear();
    return experts;
  }

  /// Of two calls of one stream the later one says it all.
  static void drop_superseded(const RankCalls& list, std::vector<std::uint32_t>& places) {
    std::sort(places.begin(), places.end());
    std::erase_if(places, [&](std::uint32_t place) {
      return std::any_of(places.begin(), places.end(), [&](std::uint32_t later) {
        return later > place && list.calls[later].stream == list.calls[place].stream;
      });
    });
  }

  Call call_of(InstructionId id) const {
    const Instruction& in = program_.code[id];
    Call call{.kind = CallKind::Compute,
              .cell = program_.cell(id),
              .instruction = id,
              .stream = 0,
              .waits_for = {}};
    if (program_.policy.issue == Issue::Stream)
      call.stream = static_cast<std::uint32_t>(lanes_.number_of(lanes_.lane_of[id]));
    if (const Action* owner = program_.action_of_part(id)) call.part_of = *owner;
    if (in.kind == ActionKind::Part || is_call(in.kind)) call.part = part(in, call);
    if (is_transfer(in.kind)) {
      transfer(in, call);
    } else if (in.in_collective() && hosts_.has(program_.collectives[in.route])) {
      call.kind = CallKind::Hosts;
    } else if (in.in_collective() && is_group_collective(in.kind)) {
      group_collective(in, call);
    } else if (in.in_collective()) {
      collective(program_.collectives[in.route], in.route, call);
    }
    return call;
  }

  void transfer(const Instruction& in, Call& call) const {
    const Route& route = program_.routes[in.route];
    call.kind = is_send(in.kind) ? CallKind::Send : CallKind::Recv;
    call.communicator = step_.plan.of_route[in.route];
    call.peer = step_.plan.communicators[call.communicator].index_of(
        is_send(in.kind) ? route.destination : route.source);
    call.count = elements(message_bytes_[in.route], call.element_bytes);
  }

  pipewright::Part part(const Instruction& in, const Call& call) const {
    pipewright::Part part{.call = program_.call(in)};
    if (!call.part_of) return part;
    const PartWork& work = program_.work(in);
    part.weight = work.up_to - work.before;
    part.beside = work.beside;
    return part;
  }

  /// NCCL counts what a member brings to a gather, gets of a scatter, and sends to each.
  void group_collective(const Instruction& in, Call& call) const {
    const pipewright::Call& said = call.part->call;
    call.kind = in.kind == ActionKind::AllReduce       ? CallKind::AllReduce
                : in.kind == ActionKind::AllGather     ? CallKind::AllGather
                : in.kind == ActionKind::ReduceScatter ? CallKind::ReduceScatter
                : in.kind == ActionKind::AllToAll      ? CallKind::AllToAll
                : in.kind == ActionKind::Broadcast     ? CallKind::Broadcast
                                                       : CallKind::RingSend;
    call.communicator = step_.plan.of_collective[in.route];
    const bool is_of_each = call.kind == CallKind::AllGather ||
                            call.kind == CallKind::ReduceScatter || call.kind == CallKind::AllToAll;
    const auto& communicator = step_.plan.communicators[call.communicator];
    const auto members = static_cast<std::int64_t>(communicator.members.size());
    if (const ElementType* type = element_type(said.dtype))
      call.element_bytes = static_cast<int>(type->bytes);
    call.count = elements(bytes_of(said), call.element_bytes) / (is_of_each ? members : 1);
  }

  /// A sharded stage's sum leaves each member its own part; its parameters come back by UNSHARD.
  void collective(const Collective& collective, std::uint32_t index, Call& call) const {
    if (collective.groups > 1)
      throw InputError("replicas that divide their state in groups do not run over NCCL yet");
    call.communicator = step_.plan.of_collective[index];
    const auto members = static_cast<std::int64_t>(collective.members.size());
    const auto stage = static_cast<std::size_t>(collective.stage.value);
    const std::int64_t bytes =
        costs_.parameter_bytes.empty() ? 0 : costs_.parameter_bytes[stage].value;
    const std::int64_t all = elements(bytes, call.element_bytes);
    const std::int64_t part = (all + members - 1) / members;
    if (collective.kind == ActionKind::ReduceNorm) {
      call.kind = CallKind::AllReduce;
      call.count = 1;
      call.element_bytes = 8;
    } else if (collective.kind == ActionKind::ReduceTied) {
      // Replicas of a stage hold one sum already: all but the first of them bring zeros.
      call.kind = CallKind::AllReduce;
      call.count = elements(costs_.tied_bytes.value, call.element_bytes);
    } else if (collective.kind == ActionKind::Unshard) {
      call.kind = CallKind::AllGather;
      call.count = part;
    } else {
      call.kind = collective.sharded ? CallKind::ReduceScatter : CallKind::AllReduce;
      call.count = collective.sharded ? part : all;
    }
  }

  static std::int64_t elements(std::int64_t bytes, int element_bytes) {
    return (bytes + element_bytes - 1) / element_bytes;
  }

  const Program& program_;
  const CostTable& costs_;
  const ByHosts& hosts_;
  const LaneTable lanes_;
  const std::vector<std::int64_t> message_bytes_;
  StepCalls step_;
  // Of the rank at hand.
  RankId rank_;
  InstructionId begin_ = 0;
  std::vector<std::uint32_t> place_of_;           // by instruction of its list
  std::vector<std::vector<std::uint32_t>> seen_;  // by stream, by other stream: waited up to there
};

}  // namespace

std::string_view to_string(CallKind kind) {
  switch (kind) {
    case CallKind::Compute:
      return "compute";
    case CallKind::GroupStart:
      return "ncclGroupStart";
    case CallKind::GroupEnd:
      return "ncclGroupEnd";
    case CallKind::Send:
      return "ncclSend";
    case CallKind::Recv:
      return "ncclRecv";
    case CallKind::AllReduce:
      return "ncclAllReduce";
    case CallKind::ReduceScatter:
      return "ncclReduceScatter";
    case CallKind::AllGather:
      return "ncclAllGather";
    case CallKind::AllToAll:
      return "ncclSend + ncclRecv, all";
    case CallKind::Broadcast:
      return "ncclBroadcast";
    case CallKind::RingSend:
      return "ncclSend + ncclRecv";
    case CallKind::Hosts:
      return "hosts";
  }
  return "";
}

std::string text_of(const Call& call) {
  if (!call.part) return to_string(call.cell) + (call.of_experts ? " of experts" : "");
  return to_string(*call.part) + (call.part_of ? " of " + to_string(*call.part_of) : "");
}

StepCalls calls_of(const Program& program, const CostTable& costs, const ByHosts& hosts) {
  return Calls(program, costs, hosts).run();
}

}  // namespace pipewright::exec::nccl
