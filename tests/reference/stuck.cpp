#include "tests/reference/stuck.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

namespace pipewright::reference {

std::string to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Deadlock:
      return "deadlock";
    case Verdict::Mismatch:
      return "mismatch";
    case Verdict::Invalid:
      return "invalid";
  }
  return "";
}

namespace {

/// An edge of the graph of heads: the thing that a head waits for, by the lane of the head that
/// this stands behind.
using Waits = std::map<int, int>;

class Judge {
 public:
  Judge(const Program& program, const Run& run) : program_(program), run_(run) {
    for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
      const int id = run.first_unfinished(program.lanes[lane]);
      if (id == kNobody || (!program.lanes[lane].compute && !run.issued(id))) continue;
      head_of_[static_cast<int>(lane)] = id;
    }
    for (const auto& [lane, id] : head_of_) waits_of_[lane] = waits(id);
  }

  Stuck run(bool fragment) const {
    Stuck stuck;
    for (const auto& [lane, id] : head_of_) {
      stuck.heads.push_back({program_.lanes[lane].rank, program_.lanes[lane].number, named(id)});
    }
    stuck.mismatches = mismatches();
    if (head_of_.empty()) return stuck;
    if (!stuck.mismatches.empty()) {
      stuck.verdict = Verdict::Mismatch;
      return stuck;
    }
    stuck.cycle = cycle();
    stuck.verdict = fragment || !stuck.cycle.empty() ? Verdict::Deadlock : Verdict::Invalid;
    return stuck;
  }

 private:
  std::string named(int id) const { return text(program_.instructions[id].cell); }

  // --- 4.4 ---

  std::vector<Mismatch> mismatches() const {
    std::vector<Mismatch> reached;
    for (std::size_t id = 0; id < program_.instructions.size(); ++id) {
      const Instruction& recv = program_.instructions[id];
      if (!recv.is_recv() || !recv.mismatch || !run_.ready(static_cast<int>(id))) continue;
      if (run_.left(recv.partner) || run_.ready(recv.partner)) {
        reached.push_back({recv.rank, named(static_cast<int>(id)), named(recv.partner)});
      }
    }
    return reached;
  }

  // --- 7.1 ---

  Waits waits(int head) const {
    const Instruction& instruction = program_.instructions[head];
    std::vector<int> things;
    for (const auto* list : {&instruction.inputs, &instruction.run_before}) {
      for (const int id : *list) {
        if (!run_.ended(id)) things.push_back(id);
      }
    }
    if (instruction.is_transfer() && things.empty()) things.push_back(other_end(head));
    if (instruction.is_member() && things.empty()) {
      for (const int other : instruction.others) {
        if (!run_.ready(other)) things.push_back(other);
      }
    }
    // Of several things behind one head the first in program order is named.
    std::sort(things.begin(), things.end());
    Waits result;
    for (const int thing : things) {
      if (thing != kNobody && behind(thing) != kNobody) result.emplace(behind(thing), thing);
    }
    return result;
  }

  /// What a ready transfer end waits for.
  int other_end(int id) const {
    if (program_.instructions[id].is_send() && run_.may_be_eager(id)) {
      for (const int older : run_.same_credit(id)) {
        const int recv = program_.instructions[older].partner;
        if (run_.left(older) && (recv == kNobody || !run_.ended(recv))) return recv;
      }
    }
    return program_.instructions[id].partner;
  }

  /// The lane whose head a thing stands behind.
  int behind(int thing) const {
    const Instruction& instruction = program_.instructions[thing];
    int lane = instruction.lane;
    if (!program_.lanes[lane].compute && !run_.issued(thing))
      lane = compute_lane_of(instruction.rank);
    return head_of_.count(lane) ? lane : kNobody;
  }

  int compute_lane_of(int rank) const {
    for (std::size_t lane = 0; lane < program_.lanes.size(); ++lane) {
      if (program_.lanes[lane].rank == rank && program_.lanes[lane].compute)
        return static_cast<int>(lane);
    }
    return kNobody;
  }

  // --- The least shortest cycle ---
  // Lanes are numbered by rank and then by their number within it, so comparing lanes is comparing
  // (rank, lane).

  std::vector<CycleElement> cycle() const {
    std::vector<int> best;
    for (const auto& [least, head] : head_of_) {
      const std::vector<int> found = cycle_begun_at(least);
      // A later one of the same length begins at a greater element.
      if (!found.empty() && (best.empty() || found.size() < best.size())) best = found;
    }
    std::vector<CycleElement> elements;
    for (std::size_t i = 0; i < best.size(); ++i) {
      const int lane = best[i], next = best[(i + 1) % best.size()];
      elements.push_back({program_.lanes[lane].rank, named(head_of_.at(lane)),
                          named(waits_of_.at(lane).at(next)), named(head_of_.at(next))});
    }
    return elements;
  }

  /// Steps from each lane back to `least`, going only through greater lanes.
  std::map<int, int> distances_to(int least) const {
    std::map<int, int> distance;
    std::deque<int> todo{least};
    while (!todo.empty()) {
      const int lane = todo.front();
      todo.pop_front();
      for (const auto& [before, waits] : waits_of_) {
        if (before < least || !waits.count(lane) || distance.count(before)) continue;
        distance[before] = (lane == least ? 0 : distance.at(lane)) + 1;
        if (before != least) todo.push_back(before);
      }
    }
    return distance;
  }

  /// The shortest cycle whose least element is this one; of several, the least list. Empty if there
  /// is none.
  std::vector<int> cycle_begun_at(int least) const {
    const std::map<int, int> distance = distances_to(least);
    if (!distance.count(least)) return {};
    std::vector<int> path{least};
    for (int left = distance.at(least); left > 1; --left) {
      // Keys of a map ascend: the first that is near enough gives the least list.
      for (const auto& [next, thing] : waits_of_.at(path.back())) {
        if (next <= least || !distance.count(next) || distance.at(next) != left - 1) continue;
        path.push_back(next);
        break;
      }
    }
    return path;
  }

  const Program& program_;
  const Run& run_;
  std::map<int, int> head_of_;     // lane, instruction
  std::map<int, Waits> waits_of_;  // by lane
};

}  // namespace

Stuck judge(const Program& program, const Run& run, bool fragment) {
  return Judge(program, run).run(fragment);
}

}  // namespace pipewright::reference
