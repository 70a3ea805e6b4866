#include "tests/reference/program.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tests/reference/lowering.hpp"
#include "tests/reference/parts.hpp"

namespace pipewright::reference {
namespace {

class Builder {
 public:
  Builder(const Order& lists, const Policy& policy, const Heading& heading)
      : lists_(lists), policy_(policy), heading_(heading), placement_(lists) {}

  Program build() {
    program_.devices_of_rank = devices_of_rank(heading_.mesh);
    program_.block = devices_of_rank(heading_.devices);
    program_.groups = heading_.replica_groups;
    add_instructions();
    for (const std::vector<int>& batch : batches_) join(batch);
    for (const Instruction& end : program_.instructions)
      program_.groups_apart = program_.groups_apart || in_group(end);
    for (Instruction& instruction : program_.instructions) find_inputs(instruction);
    chain_parts(heading_.parts, program_);
    for (Instruction& instruction : program_.instructions) find_others(instruction);
    for (const std::vector<int>& list : program_.lists) find_issuers(list);
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) make_lanes(static_cast<int>(rank));
    match();
    return program_;
  }

 private:
  void add_instructions() {
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
      program_.lists.emplace_back();
      for (const Cell& cell : lists_[rank]) {
        if (!is_batch(cell)) {
          add_instruction(static_cast<int>(rank), cell);
          continue;
        }
        batches_.emplace_back();
        for (const Action& end : cell)
          batches_.back().push_back(add_instruction(static_cast<int>(rank), {end}));
      }
    }
  }

  int add_instruction(int rank, const Cell& cell) {
    const int id = static_cast<int>(program_.instructions.size());
    Instruction instruction;
    instruction.rank = rank;
    instruction.cell = cell;
    if (is_transfer(cell)) instruction.peer = placement_.peer_of(cell[0]);
    program_.instructions.push_back(instruction);
    program_.lists.back().push_back(id);
    for (const Action& action : cell) where_[{rank, name(action)}].push_back(id);
    return id;
  }

  // --- Section 2.4 ---

  /// "F", "B", or of a SEND or RECV "".
  static std::string carries(const Action& end) {
    return is_named_transfer(end) ? "" : end.kind.substr(5);
  }

  bool by_direction() const {
    return policy_.issue == Issue::Stream && policy_.channel == Channel::Direction;
  }

  void join(const std::vector<int>& batch) {
    for (const int id : batch) {
      std::vector<int> one;
      bool sends = false, receives = false;
      for (const int other : batch) {
        const Instruction& end = program_.instructions[other];
        if (policy_.batches == Batches::Mixed && by_direction() &&
            carries(end.cell[0]) != carries(program_.instructions[id].cell[0]))
          continue;
        one.push_back(other);
        (end.is_send() ? sends : receives) = true;
      }
      if (policy_.batches == Batches::Joined || (sends && receives))
        program_.instructions[id].batch = one;
    }
  }

  /// Goes over the group's communicator, and not over that of single operations.
  bool in_group(const Instruction& end) const {
    return !end.batch.empty() && policy_.batches == Batches::Mixed &&
           policy_.issue == Issue::Stream && policy_.channel != Channel::Rank;
  }

  // --- Section 3 ---

  /// Adds the first instruction of this rank that is called so; false if there is none.
  bool add(Instruction& to, const std::string& wanted) {
    const auto found = where_.find({to.rank, wanted});
    if (found == where_.end()) return false;
    const int id = found->second.front();
    // What one action of a pair gives the other is no input of the pair.
    if (&program_.instructions[id] != &to) to.inputs.push_back(id);
    return true;
  }

  /// The same; of a RECV in a joined batch, all of that (2.4).
  bool add_received(Instruction& to, const std::string& wanted) {
    if (!add(to, wanted)) return false;
    for (const int id : program_.instructions[to.inputs.back()].batch) {
      if (id != to.inputs.back()) to.inputs.push_back(id);
    }
    return true;
  }

  /// Of an asynchronous order only what stands before it (3.1).
  void add_all(Instruction& to, const std::string& kind, int stage_or_any) {
    for (const int id : program_.lists[to.rank]) {
      if (&program_.instructions[id] == &to) {
        if (is_asynchronous(lists_)) break;
        continue;
      }
      for (const Action& a : program_.instructions[id].cell) {
        if (a.kind == kind && (stage_or_any < 0 || a.stage == stage_or_any))
          to.inputs.push_back(id);
      }
    }
  }

  void find_inputs(Instruction& to) {
    for (const Action& a : to.cell) {
      const int s = a.stage, m = a.micro_batch;
      if (a.kind == "F") {
        // S of a fragment is unknown, so s > 0 and s < S-1 are not asked: at an end there is
        // nothing to find.
        if (!add_received(to, name(s, "RECV_F", m))) add(to, name(s - 1, "F", m));
      } else if (a.kind == "I" || a.kind == "B") {
        add(to, name(s, "F", m));
        if (!add_received(to, name(s, "RECV_B", m)) && !add(to, name(s + 1, "I", m)))
          add(to, name(s + 1, "B", m));
      } else if (a.kind == "W") {
        add(to, name(s, "I", m));
      } else if (a.kind == "REDUCE_GRAD") {
        for (const char* kind : {"W", "B"})
          heading_.zero >= 2 ? add_before(to, kind, s) : add_all(to, kind, s);
      } else if (a.kind == "OPT") {
        for (const char* kind : {"W", "B", "REDUCE_GRAD"}) add_all(to, kind, -1);
        add_before(to, "UNSHARD", -1);
      } else if (is_of_all(a)) {
        for (const char* kind : {"W", "B", "REDUCE_GRAD"}) add_all(to, kind, -1);
      } else if (a.kind == "HOST_SYNC") {
        add_all_before(to, a.stream);
      } else if (a.kind == "SEND_F") {
        add(to, name(s, "F", m));
      } else if (a.kind == "SEND_B") {
        if (!add(to, name(s, "I", m))) add(to, name(s, "B", m));
      }
      if (is_pass(a) || a.kind == "RESHARD") add_before(to, "UNSHARD", s);
      if (heading_.zero >= 2 && (a.kind == "W" || a.kind == "B")) add_before(to, "REDUCE_GRAD", -1);
      if (is_wait(a)) add_same_turn(to, a);
    }
  }

  /// Of the waits called so the k-th takes the k-th of what they wait for.
  void add_same_turn(Instruction& to, const Action& wait) {
    const std::vector<int>& own = where_.at({to.rank, name(wait)});
    const auto found = where_.find({to.rank, awaited(wait)});
    std::size_t turn = 0;
    while (&program_.instructions[own[turn]] != &to) ++turn;
    if (found != where_.end() && turn < found->second.size())
      to.inputs.push_back(found->second[turn]);
  }

  void add_before(Instruction& to, const std::string& kind, int stage_or_any) {
    for (const int id : program_.lists[to.rank]) {
      if (&program_.instructions[id] == &to) return;
      for (const Action& a : program_.instructions[id].cell) {
        if (a.kind == kind && (stage_or_any < 0 || a.stage == stage_or_any))
          to.inputs.push_back(id);
      }
    }
  }

  /// What stands before a HOST_SYNC; of a stream, the calls of that.
  void add_all_before(Instruction& to, const std::string& stream) {
    for (const int id : program_.lists[to.rank]) {
      if (&program_.instructions[id] == &to) return;
      if (stream.empty() || program_.instructions[id].cell[0].stream == stream)
        to.inputs.push_back(id);
    }
  }

  // --- Sections 3.2 and 3.3 ---

  static bool is_of_all(const Action& a) {
    return a.kind == "REDUCE_NORM" || a.kind == "REDUCE_TIED";
  }

  bool computes(int rank, int stage) const {
    for (const Cell& cell : lists_[rank]) {
      for (const Action& a : cell) {
        if (is_pass(a) && a.stage == stage) return true;
      }
    }
    return false;
  }

  /// The rank's REDUCE_GRADs, or UNSHARDs, of a stage; its REDUCE_NORMs, or REDUCE_TIEDs, of
  /// stage -1.
  std::vector<int> of_kind(int rank, const std::string& kind, int stage) const {
    std::vector<int> found;
    for (const int id : program_.lists[rank]) {
      const Action& a = program_.instructions[id].cell[0];
      if (a.kind == kind && a.stage == stage) found.push_back(id);
    }
    return found;
  }

  /// The places of a device along all axes, and where its block begins (3.5).
  std::map<std::string, int> places_of(int rank) const {
    std::map<std::string, int> places;
    int rest = rank % devices_of_rank(heading_.devices);
    for (const auto& [axis, count] : heading_.devices) {
      places[axis] = rest % count;
      rest /= count;
    }
    places[""] = rank / devices_of_rank(heading_.devices);
    return places;
  }

  std::vector<int> ranks_along(const AxisRange& axes, int rank) const {
    std::vector<int> ranks;
    for (int other = 0; other < static_cast<int>(lists_.size()); ++other) {
      auto places = places_of(other), own = places_of(rank);
      for (std::size_t k = axes.first; k < axes.end; ++k) {
        const std::string& axis = heading_.devices[k].first;
        places[axis] = own[axis] = 0;
      }
      if (places == own) ranks.push_back(other);
    }
    return ranks;
  }

  /// Whether two ranks hold the same part of a stage's parameters.
  bool hold_the_same(int a, int b) const { return places_of(a)["tp"] == places_of(b)["tp"]; }

  /// The ranks of a group: those that the order names, else those that call it.
  std::vector<int> ranks_of(const std::string& group) const {
    const auto given = heading_.groups.find(group);
    if (given != heading_.groups.end()) return given->second;
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
      if (!of_group(static_cast<int>(rank), group).empty()) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  std::vector<int> of_group(int rank, const std::string& group) const {
    std::vector<int> found;
    for (const int id : program_.lists[rank]) {
      const Action& a = program_.instructions[id].cell[0];
      if (is_group_collective(a) && a.group == group) found.push_back(id);
    }
    return found;
  }

  void find_others_of_call(Instruction& of) {
    const bool making = of.cell[0].kind == "NEW_GROUP";
    const std::string& group = of.cell[0].group;
    if (!making && is_axis(heading_.mesh, group)) {
      const AxisRange axes = axes_of_group(heading_.mesh, group);
      of.devices = of.stride = 1;
      for (std::size_t k = 0; k < axes.end; ++k)
        (k < axes.first ? of.stride : of.devices) *= heading_.mesh[k].second;
      return;
    }
    const auto calls = [&](int rank) {
      return making ? of_kind(rank, "NEW_GROUP", -1) : of_group(rank, group);
    };
    std::vector<int> ranks;
    for (std::size_t rank = 0; making && rank < lists_.size(); ++rank)
      ranks.push_back(static_cast<int>(rank));
    if (!making && is_axis(heading_.devices, group))
      ranks = ranks_along(axes_of_group(heading_.devices, group), of.rank);
    else if (!making)
      ranks = ranks_of(group);
    const std::vector<int> own = calls(of.rank);
    std::size_t turn = 0;
    while (&program_.instructions[own[turn]] != &of) ++turn;
    for (const int rank : ranks) {
      if (rank == of.rank) continue;
      const std::vector<int> theirs = calls(rank);
      if (turn < theirs.size())
        of.others.push_back(theirs[turn]);
      else
        of.lacks_member = true;
    }
  }

  /// Of a rank among the replicas of a stage: groups of them follow one another.
  int group_of(int rank, int stage) const {
    int replicas = 0, before = 0;
    for (int other = 0; other < static_cast<int>(lists_.size()); ++other) {
      if (!computes(other, stage) || !hold_the_same(other, rank)) continue;
      ++replicas;
      before += other < rank ? 1 : 0;
    }
    return before * heading_.replica_groups / replicas;
  }

  void find_others(Instruction& of) {
    const Action& a = of.cell[0];
    program_.has_calls = program_.has_calls || is_call(a);
    if (is_group_collective(a) || a.kind == "NEW_GROUP") return find_others_of_call(of);
    const bool of_all = is_of_all(a);
    if (!of_all && a.kind != "REDUCE_GRAD" && a.kind != "UNSHARD") return;
    if (!of_all && !computes(of.rank, a.stage)) return;
    const std::vector<int> own = of_kind(of.rank, a.kind, a.stage);
    std::size_t turn = 0;
    while (&program_.instructions[own[turn]] != &of) ++turn;
    for (int rank = 0; rank < static_cast<int>(lists_.size()); ++rank) {
      if (rank == of.rank || (!of_all && !computes(rank, a.stage))) continue;
      if (a.kind != "REDUCE_NORM" && !hold_the_same(rank, of.rank)) continue;
      if (a.kind == "UNSHARD" && group_of(rank, a.stage) != group_of(of.rank, a.stage)) continue;
      const std::vector<int> theirs = of_kind(rank, a.kind, a.stage);
      if (turn < theirs.size()) of.others.push_back(theirs[turn]);
    }
    if (of.others.empty() || a.kind != "UNSHARD") return;
    if (static_cast<int>(program_.sharded.size()) <= a.stage) program_.sharded.resize(a.stage + 1);
    program_.sharded[a.stage] = true;
  }

  // --- Section 2 ---

  void find_issuers(const std::vector<int>& list) {
    int last_on_compute_lane = kNobody;
    std::vector<int> run;
    for (const int id : list) {
      Instruction& instruction = program_.instructions[id];
      if (!on_compute_lane(instruction)) {
        if (last_on_compute_lane != kNobody && !at_start(instruction))
          instruction.issued_by = {last_on_compute_lane};
      } else {
        last_on_compute_lane = id;
      }
      if (instruction.is_transfer()) {
        run.push_back(id);
      } else {
        if (policy_.issue == Issue::Grouped) instruction.run_before = run;
        run.clear();
      }
    }
  }

  bool on_compute_lane(const Instruction& instruction) const {
    if (instruction.is_transfer()) return policy_.issue == Issue::Inline;
    return !instruction.is_member() || policy_.issue != Issue::Stream ||
           is_of_all(instruction.cell[0]) || instruction.cell[0].kind == "NEW_GROUP";
  }

  /// Section 3.3: the line of a call, "" of what is none. A transfer end stands in one if it names
  /// a stream.
  static std::string line_of(const Instruction& instruction) {
    const Action& a = instruction.cell[0];
    if (!a.stream.empty()) return "stream " + a.stream;
    return is_group_collective(a) ? "group " + a.group : "";
  }

  /// Section 2.1: equal keys, one queue. `lines`: those of the rank so far, with their numbers.
  std::string queue_of(int id, std::map<std::string, int>& lines) const {
    const Instruction& end = program_.instructions[id];
    if (!line_of(end).empty()) {
      const int line = lines.emplace(line_of(end), static_cast<int>(lines.size())).first->second;
      return "line " +
             std::to_string(policy_.device_queues > 0 ? line % policy_.device_queues : line);
    }
    if (end.is_member()) return "collectives";
    const std::string peer = std::to_string(end.peer);
    const std::string direction = end.is_send() ? "to " : "from ";
    const std::string kind = by_direction() ? " " + carries(end.cell[0]) : "";
    if (in_group(end)) return "group" + kind;
    if (by_direction()) return "all" + kind;
    if (policy_.issue == Issue::Grouped || policy_.channel == Channel::Edge)
      return direction + peer;
    if (policy_.channel == Channel::Pair) return "with " + peer;
    if (policy_.channel == Channel::Tag) return "alone " + std::to_string(id);
    return "all";
  }

  void make_lanes(int rank) {
    program_.lanes.push_back({rank, 0, true, {}});
    const std::size_t compute = program_.lanes.size() - 1;
    std::map<std::string, std::size_t> queues;
    std::map<std::string, int> lines;
    for (const int id : program_.lists[rank]) {
      std::size_t lane = compute;
      if (!on_compute_lane(program_.instructions[id])) {
        const auto [queue, is_new] = queues.emplace(queue_of(id, lines), program_.lanes.size());
        if (is_new)
          program_.lanes.push_back(
              {rank, static_cast<int>(program_.lanes.size() - compute), false, {}});
        lane = queue->second;
      }
      program_.lanes[lane].instructions.push_back(id);
      program_.instructions[id].lane = static_cast<int>(lane);
    }
    for (const auto& [key, lane] : queues) in_order_of_issue(program_.lanes[lane].instructions);
  }

  /// First issued, first in line: program order, but that what is issued `at-start` stands before
  /// all others.
  void in_order_of_issue(std::vector<int>& queue) const {
    std::stable_partition(queue.begin(), queue.end(),
                          [this](int id) { return at_start(program_.instructions[id]); });
  }

  bool at_start(const Instruction& instruction) const {
    return policy_.post == Post::AtStart && policy_.issue == Issue::Stream &&
           instruction.is_recv() && !is_named_transfer(instruction.cell[0]);
  }

  // --- Section 4.1 ---

  void match() {
    const bool by_tag = policy_.issue == Issue::Stream && policy_.channel == Channel::Tag;
    // What is to meet: from rank to rank or, by tag, the tensor. The k-th of one list meets the
    // k-th of the other.
    std::map<std::string, std::vector<int>> sends, recvs;
    for (std::size_t id = 0; id < program_.instructions.size(); ++id) {
      const Instruction& end = program_.instructions[id];
      if (!end.is_transfer() || (end.peer == kNobody && !by_tag)) continue;
      const int from = end.is_send() ? end.rank : end.peer,
                to = end.is_send() ? end.peer : end.rank;
      std::string meeting = std::to_string(from) + " to " + std::to_string(to);
      if (by_tag && !is_named_transfer(end.cell[0])) meeting = "";
      if (by_tag) meeting += " " + tensor(end.cell[0]);
      // 4.1: on the same communicator.
      if (!by_tag && in_group(end)) meeting += " in a group";
      if (by_direction()) meeting += " " + carries(end.cell[0]);
      (end.is_send() ? sends : recvs)[meeting].push_back(static_cast<int>(id));
    }
    for (const auto& [meeting, list] : sends) {
      const std::vector<int>& others = recvs[meeting];
      for (std::size_t k = 0; k < std::min(list.size(), others.size()); ++k)
        meet(list[k], others[k]);
    }
  }

  void meet(int send_id, int recv_id) {
    Instruction& send = program_.instructions[send_id];
    Instruction& recv = program_.instructions[recv_id];
    send.partner = recv_id;
    recv.partner = send_id;
    send.mismatch = recv.mismatch =
        tensor(send.cell[0]) != tensor(recv.cell[0]) ||
        (is_named_transfer(send.cell[0]) && differ(send.cell[0], recv.cell[0]));
  }

  /// What a transfer end carries: F or B, the stage that made it, the micro-batch; or its name.
  static std::string tensor(const Action& end) {
    if (is_named_transfer(end)) return "named " + end.data;
    int made_by = end.stage;
    if (end.kind == "RECV_F") made_by = end.stage - 1;
    if (end.kind == "RECV_B") made_by = end.stage + 1;
    return name(made_by, end.kind.substr(5), end.micro_batch);
  }

  const Order& lists_;
  const Policy& policy_;
  const Heading& heading_;
  Placement placement_;
  Program program_;
  std::vector<std::vector<int>> batches_;
  std::map<std::pair<int, std::string>, std::vector<int>> where_;  // rank, name of an action
};

}  // namespace

Program build_program(const Order& lists, const Policy& policy, const Heading& heading) {
  return Builder(lists, policy, heading).build();
}

}  // namespace pipewright::reference
