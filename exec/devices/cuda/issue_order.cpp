// The order is that in which instructions end when nothing takes any time. Whether a Program gets
// stuck does not depend on any duration (docs/semantics.md §7).
#include "exec/devices/cuda/issue_order.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "core/program/credit.hpp"
#include "core/program/program_walk.hpp"
#include "exec/runtime/needs.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Everything takes no time: an order in which it can all be issued.
class Walk {
 public:
  Walk(const Program& program, std::vector<std::int64_t> bytes)
      : program_(program), walk_(program, std::move(bytes), *this) {
    progress_.ended.assign(program.code.size(), 0);
  }

  void run() {
    walk_.begin();
    walk_.go_on();
    while (!computing_.empty() || walk_.meet_one()) {
      if (computing_.empty()) continue;
      const InstructionId id = computing_.front();
      computing_.pop_front();
      walk_.computation_ended(id);
      walk_.go_on();
    }
    for (InstructionId id = 0; id < program_.code.size(); ++id)
      progress_.left.push_back(walk_.has_left(id));
  }

  std::vector<InstructionId> order;
  const Progress& progress() const { return progress_; }

 private:
  friend ProgramWalk<Walk>;

  bool takes_no_time(InstructionId) const { return true; }
  bool has_ended(InstructionId id) const { return progress_.ended[id] != 0; }
  void on_ready(InstructionId) {}
  void on_ended(InstructionId id) {
    progress_.ended[id] = 1;
    order.push_back(id);
  }
  void start_computation(InstructionId id) { computing_.push_back(id); }
  void start_message(InstructionId send) { walk_.message_ended(send); }
  void start_collective(std::uint32_t index) { walk_.collective_ended(index); }

  const Program& program_;
  ProgramWalk<Walk> walk_;
  Progress progress_;
  std::deque<InstructionId> computing_;
};

/// The events of an order that is known.
class Events {
 public:
  Events(const Program& program, const Progress& progress, std::vector<std::int64_t> bytes)
      : program_(program),
        progress_(progress),
        credit_(program, std::move(bytes)),
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

  /// The receive that has given back enough for the send to leave.
  void add_credit(InstructionId send, std::vector<InstructionId>& waits) {
    if (credit_.is_unlimited(send)) return;
    Account& own = accounts_[credit_.account_of(send)];
    own.left += credit_.price(send);
    std::int64_t returned = 0;
    for (const auto& [recv, value] : own.returns) {
      if (own.left - returned <= credit_.whole(send)) return;
      returned += value;
      waits.push_back(recv);
    }
  }

  void give_credit_back(InstructionId recv) {
    const InstructionId send = program_.code[recv].link;
    if (progress_.left[send] == 0) return;
    accounts_[credit_.account_of(send)].returns.emplace_back(recv, credit_.price(send));
  }

  const Program& program_;
  const Progress& progress_;
  const Credit credit_;
  const LaneTable lanes_;
  std::vector<std::vector<InstructionId>> needs_;  // by instruction
  std::vector<InstructionId> before_;              // in its lane
  std::map<Credit::AccountId, Account> accounts_;
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
