// The order is that in which instructions end when nothing takes any time:
// exec/transports/local/exchange meets the transfers, and what is here walks the ranks. Whether a
// Program gets stuck does not depend on any duration (docs/semantics.md §7).
#include "exec/devices/cuda/issue_order.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "exec/runtime/needs.hpp"
#include "exec/runtime/transport.hpp"
#include "exec/transports/local/exchange.hpp"

namespace pipewright::exec::cuda {
namespace {

PayloadPtr nothing() { return std::make_unique<HostPayload>(std::vector<float>()); }

class Walk {
 public:
  Walk(const Program& program, std::vector<std::int64_t> bytes)
      : program_(program),
        exchange_(program,
                  {std::vector<std::int64_t>(program.routes.size(), 0), std::move(bytes)}) {
    progress_.ended.assign(program.code.size(), 0);
    progress_.left.assign(program.code.size(), 0);
    for (int r = 0; r < program.ranks(); ++r) {
      Rank& rank = ranks_.emplace_back();
      rank.begin = rank.at = program.rank_begin[static_cast<std::size_t>(r)];
      rank.end = program.rank_begin[static_cast<std::size_t>(r) + 1];
      for (const InstructionId id : issue_order(program, RankId(r))) {
        if (is_transfer(program.code[id].kind)) rank.ends.push_back(id);
        if (program.code[id].has(Instruction::kAtStart)) ++rank.at_start;
      }
    }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_) moved |= go_on(rank);
      if (!moved) moved = exchange_.settle(0) && collect();
    }
    Timeline times;
    times.start = times.moving = times.end =
        std::vector<std::int64_t>(program_.code.size(), kNotEnded);
    exchange_.report(times, progress_);
  }

  std::vector<InstructionId> order;
  const Progress& progress() const { return progress_; }

 private:
  struct Rank {
    InstructionId begin = 0, at = 0, end = 0;
    std::vector<InstructionId> ends;  // transfer ends in the order of issue
    std::size_t issued = 0;           // of those
    std::size_t at_start = 0;         // those that are issued before the list
    bool stands_at_issued = false;    // its compute lane waits for the end of what it has issued
    std::vector<InstructionId> late;  // whose data is not there yet
  };

  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  bool has_ended(InstructionId id) const { return progress_.ended[id] != 0; }

  bool go_on(Rank& rank) {
    bool moved = false;
    while (rank.issued < rank.at_start && issue(rank, rank.ends[rank.issued])) moved = true;
    if (rank.issued < rank.at_start) return moved;
    while (rank.at < rank.end && step(rank)) moved = true;
    return moved;
  }

  /// The instruction at which the rank's compute lane stands; false if it has to stay there.
  bool step(Rank& rank) {
    const InstructionId id = rank.at;
    const Instruction& in = code(id);
    if (in.has(Instruction::kAtStart)) {
      ++rank.at;
      return true;
    }
    if (!in.has(Instruction::kOnComputeLane)) {
      if (!issue(rank, id)) return false;
      ++rank.at;
      return true;
    }
    if (in.has(Instruction::kNotPassed)) return false;
    if (!rank.stands_at_issued) {
      if (!inputs_there(rank, id)) return false;
      if (!in.is_communication()) {
        compute(rank, id);
        ++rank.at;
        return true;
      }
      issue(rank, id);
      rank.stands_at_issued = true;
    }
    if (!has_ended(id)) return false;
    rank.stands_at_issued = false;
    ++rank.at;
    return true;
  }

  bool inputs_there(const Rank& rank, InstructionId id) const {
    const Instruction& in = code(id);
    if (!is_transfer(in.kind) && in.link != kNoInstruction && !has_ended(in.link)) return false;
    for (const auto& [self, input] : program_.extra_inputs_of(id)) {
      if (!has_ended(input)) return false;
    }
    if (!in.has(Instruction::kJoinsRun)) return true;
    for (InstructionId member = id; member > rank.begin && is_transfer(code(member - 1).kind);
         --member) {
      if (!has_ended(member - 1)) return false;
    }
    return true;
  }

  void compute(Rank& rank, InstructionId id) {
    progress_.ended[id] = 1;
    order.push_back(id);
    std::erase_if(rank.late, [&](InstructionId late) {
      if (!inputs_there(rank, late)) return false;
      if (is_send(code(late).kind)) {
        exchange_.provide(late, nothing(), 0);
      } else {
        exchange_.issue(late, nullptr, 0);
      }
      return true;
    });
    collect();
  }

  /// False if its host stands, or there is no place in flight.
  bool issue(Rank& rank, InstructionId id) {
    if (code(id).has(Instruction::kNotPassed)) return false;
    const bool transfer = is_transfer(code(id).kind);
    if (transfer && program_.policy.in_flight > 0 && program_.policy.issue == Issue::Stream) {
      const auto places = static_cast<std::size_t>(program_.policy.in_flight);
      if (rank.issued >= places && !has_ended(rank.ends[rank.issued - places])) return false;
    }
    if (transfer) ++rank.issued;
    const bool ready = inputs_there(rank, id);
    if (!ready) rank.late.push_back(id);
    if (ready || transfer)
      exchange_.issue(id, is_send(code(id).kind) && ready ? nothing() : nullptr, 0);
    collect();
    return true;
  }

  bool collect() {
    exchange_.run_events(0);
    const std::vector<InstructionId> ended = exchange_.take_just_ended();
    for (const InstructionId id : ended) {
      progress_.ended[id] = 1;
      order.push_back(id);
    }
    return true;
  }

  const Program& program_;
  local::Exchange exchange_;
  Progress progress_;
  std::vector<Rank> ranks_;
};

/// The events of an order that is known.
class Events {
 public:
  Events(const Program& program, const Progress& progress, std::vector<std::int64_t> bytes)
      : program_(program),
        progress_(progress),
        bytes_(std::move(bytes)),
        lanes_(lane_table(program)),
        before_(program.code.size(), kNoInstruction) {
    for (int r = 0; r < program.ranks(); ++r) {
      for (auto& one : needs_of(program, RankId(r))) needs_.push_back(std::move(one));
    }
    for (std::uint32_t lane = 0; lane < lanes_.count(); ++lane) {
      InstructionId last = kNoInstruction;
      for (const InstructionId id : lanes_.instructions_of(lane)) {
        before_[id] = last;
        last = id;
      }
    }
  }

  void list(IssueOrder& result) {
    result.waits_begin.push_back(0);
    for (const InstructionId id : result.order) {
      std::vector<InstructionId> waits = waits_of(id);
      std::sort(waits.begin(), waits.end());
      waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
      std::erase_if(waits, [&](InstructionId one) {
        return one == kNoInstruction || lanes_.lane_of[one] == lanes_.lane_of[id];
      });
      result.waits.insert(result.waits.end(), waits.begin(), waits.end());
      result.waits_begin.push_back(static_cast<std::uint32_t>(result.waits.size()));
    }
  }

 private:
  struct Account {
    std::int64_t left = 0;                                        // price of all that has left
    std::vector<std::pair<InstructionId, std::int64_t>> returns;  // RECVs in the order of their end
  };

  void add_readiness(InstructionId id, std::vector<InstructionId>& waits) const {
    waits.insert(waits.end(), needs_[id].begin(), needs_[id].end());
    waits.push_back(before_[id]);
  }

  std::vector<InstructionId> waits_of(InstructionId id) {
    const Instruction& in = program_.code[id];
    std::vector<InstructionId> waits;
    add_readiness(id, waits);
    if (in.in_collective()) {
      for (const Collective::Member& member : program_.collectives[in.route].members)
        add_readiness(member.instruction, waits);
    } else if (is_send(in.kind)) {
      if (progress_.left[id] == 0) {
        add_readiness(in.link, waits);
      } else {
        add_credit(id, waits);
      }
    } else if (is_recv(in.kind)) {
      waits.push_back(in.link);
      give_credit_back(id);
    }
    return waits;
  }

  const Protocol& protocol(const Instruction& in) const {
    return program_.routes[in.route].send_kind == ActionKind::SendF ? program_.policy.send_f
                                                                    : program_.policy.send_b;
  }
  Account& account(const Instruction& in) {
    const Route& route = program_.routes[in.route];
    return accounts_[{{route.source, route.destination}, route.send_kind}];
  }
  std::int64_t price(const Instruction& in) const {
    return protocol(in).kind == Protocol::Kind::EagerBytes && !bytes_.empty() ? bytes_[in.route]
                                                                              : 1;
  }

  /// The receive that has given back enough for the send to leave.
  void add_credit(InstructionId send, std::vector<InstructionId>& waits) {
    const Instruction& in = program_.code[send];
    const Protocol& limit = protocol(in);
    if (limit.kind == Protocol::Kind::EagerUnlimited) return;
    Account& own = account(in);
    own.left += price(in);
    std::int64_t returned = 0;
    for (const auto& [recv, value] : own.returns) {
      if (own.left - returned <= limit.credit) return;
      returned += value;
      waits.push_back(recv);
    }
  }

  void give_credit_back(InstructionId recv) {
    const InstructionId send = program_.code[recv].link;
    if (progress_.left[send] == 0) return;
    account(program_.code[send]).returns.emplace_back(recv, price(program_.code[send]));
  }

  const Program& program_;
  const Progress& progress_;
  const std::vector<std::int64_t> bytes_;
  const LaneTable lanes_;
  std::vector<std::vector<InstructionId>> needs_;  // by instruction
  std::vector<InstructionId> before_;              // in its lane
  std::map<std::pair<std::pair<RankId, RankId>, ActionKind>, Account> accounts_;
};

}  // namespace

IssueOrder issue_order_of(const Program& program, const CostTable& costs) {
  const std::vector<std::int64_t> bytes = costs.message_bytes(program);
  Walk walk(program, bytes);
  walk.run();
  IssueOrder result;
  result.order = std::move(walk.order);
  result.stuck = explain_stuck(program, walk.progress(), bytes);
  Events(program, walk.progress(), bytes).list(result);
  return result;
}

}  // namespace pipewright::exec::cuda
