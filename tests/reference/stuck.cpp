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

/// What has a head: the lanes of a rank and, behind them, its host (section 2.2). Ordered by rank,
/// then number.
using Place = std::pair<int, int>;

/// An edge of the graph of heads: the thing that a head waits for, by the place of the head that
/// this stands behind, and who waits: the head itself, or an end of its joined batch (2.4).
struct Wait {
  int thing = kNobody, who = kNobody;
};
using Waits = std::map<Place, Wait>;

class Judge {
 public:
  Judge(const Program& program, const Run& run) : program_(program), run_(run) {
    for (const Lane& lane : program.lanes) {
      const int id = run.first_unfinished(lane);
      const std::optional<Run::Stand> held = run.held(lane.rank);
      if (lane.compute && held) {
        head_of_[{lane.rank, lane.number}] = held->at;
        to_be_issued_[{lane.rank, lane.number}] = held->waits_for;
      } else if (id != kNobody && (lane.compute || run.issued(id))) {
        head_of_[{lane.rank, lane.number}] = id;
      }
    }
    for (std::size_t rank = 0; rank < run.hosts().size(); ++rank) {
      if (!run.hosts()[rank]) continue;
      head_of_[host_of(static_cast<int>(rank))] = run.hosts()[rank]->at;
      to_be_issued_[host_of(static_cast<int>(rank))] = run.hosts()[rank]->waits_for;
    }
    for (const auto& [place, id] : head_of_) waits_of_[place] = waits(place, id);
  }

  Stuck run(bool fragment) const {
    Stuck stuck;
    for (const auto& [place, id] : head_of_)
      stuck.heads.push_back({place.first, place.second, named(id)});
    stuck.mismatches = mismatches();
    if (head_of_.empty()) return stuck;
    if (!stuck.mismatches.empty()) {
      stuck.verdict = Verdict::Mismatch;
      return stuck;
    }
    stuck.cycle = cycle();
    const bool hangs =
        fragment || !stuck.cycle.empty() || program_.groups_apart || program_.has_calls;
    stuck.verdict = hangs ? Verdict::Deadlock : Verdict::Invalid;
    return stuck;
  }

 private:
  std::string named(int id) const { return text(program_.instructions[id].cell); }

  // --- 4.4 ---

  std::vector<Mismatch> mismatches() const {
    std::vector<Mismatch> reached;
    for (std::size_t id = 0; id < program_.instructions.size(); ++id) {
      const Instruction& recv = program_.instructions[id];
      if (recv.is_member() && run_.ready(static_cast<int>(id))) {
        for (const int other : recv.others) {
          if (other > static_cast<int>(id) || !run_.ready(other) || !is_call(recv.cell[0]) ||
              !differ(recv.cell[0], program_.instructions[other].cell[0]))
            continue;
          reached.push_back({recv.rank, named(static_cast<int>(id)), named(other)});
          break;
        }
      }
      if (!recv.is_recv() || !recv.mismatch || !run_.ready(static_cast<int>(id))) continue;
      if (run_.left(recv.partner) || run_.ready(recv.partner)) {
        reached.push_back({recv.rank, named(static_cast<int>(id)), named(recv.partner)});
      }
    }
    return reached;
  }

  // --- 7.1 ---

  Waits waits(const Place& place, int head) const {
    std::vector<std::pair<int, int>> things;  // and who waits for it
    if (to_be_issued_.count(place)) {
      things = {{to_be_issued_.at(place), head}};
    } else if (!run_.passed(head)) {
      things = {{head, head}};
    } else {
      for (const int who : at_head_with(head)) {
        const bool joined = !program_.instructions[who].batch.empty();
        const std::vector<int> inputs = unmet_inputs(who);
        if (joined && inputs.empty() && !run_.connected(who)) {
          for (const auto& wait : connections_of(who)) things.push_back(wait);
          continue;
        }
        for (const int thing : things_of(who)) things.emplace_back(thing, who);
      }
    }
    // Of several things behind one head the first in program order is named.
    std::sort(things.begin(), things.end());
    Waits result;
    for (const auto& [thing, who] : things) {
      if (thing != kNobody && head_of_.count(behind(thing)))
        result.emplace(behind(thing), Wait{thing, who});
    }
    return result;
  }

  /// The head, and what of its joined batch is issued and has not ended.
  std::vector<int> at_head_with(int head) const {
    std::vector<int> ends{head};
    const Instruction& first = program_.instructions[head];
    for (const int id : first.batch) {
      if (id != head && program_.instructions[id].lane == first.lane && !run_.ended(id) &&
          run_.issued(id))
        ends.push_back(id);
    }
    return ends;
  }

  std::vector<int> unmet_inputs(int id) const {
    const Instruction& instruction = program_.instructions[id];
    std::vector<int> unmet;
    for (const auto* list : {&instruction.inputs, &instruction.run_before}) {
      for (const int input : *list) {
        if (!run_.ended(input)) unmet.push_back(input);
      }
    }
    return unmet;
  }

  std::vector<int> things_of(int id) const {
    const Instruction& instruction = program_.instructions[id];
    std::vector<int> things = unmet_inputs(id);
    if (instruction.is_transfer() && things.empty()) things.push_back(other_end(id));
    if (instruction.is_member() && things.empty()) {
      for (const int other : instruction.others) {
        if (!run_.ready(other)) things.push_back(other);
      }
    }
    return things;
  }

  /// What the end of an operation that does not connect waits for (2.4), and which end of the
  /// operation that concerns.
  std::vector<std::pair<int, int>> connections_of(int id) const {
    const auto stands = [this](int end) {
      return end != kNobody && (run_.ended(end) || (run_.issued(end) && run_.at_head(end)));
    };
    std::vector<std::pair<int, int>> missing, unconnected;
    for (const int end : program_.instructions[id].batch) {
      if (!stands(end)) missing.emplace_back(end, id);
      const std::optional<int> other = run_.connects_with(end);
      if (!other) continue;
      if (!stands(*other)) {
        missing.emplace_back(*other, end);
      } else if (!run_.connected(*other)) {
        unconnected.emplace_back(*other, end);
      }
    }
    return missing.empty() ? unconnected : missing;
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

  /// The lane, or host, whose head a thing stands behind; it may have none.
  Place behind(int thing) const {
    const Instruction& instruction = program_.instructions[thing];
    if (!run_.passed(thing)) return host_of(instruction.rank);
    if (!program_.lanes[instruction.lane].compute && !run_.issued(thing))
      return {instruction.rank, 0};
    return {instruction.rank, program_.lanes[instruction.lane].number};
  }

  Place host_of(int rank) const {
    int lanes = 0;
    for (const Lane& lane : program_.lanes) lanes += lane.rank == rank;
    return {rank, lanes};
  }

  // --- The least shortest cycle ---
  std::vector<CycleElement> cycle() const {
    std::vector<Place> best;
    for (const auto& [least, head] : head_of_) {
      const std::vector<Place> found = cycle_begun_at(least);
      // A later one of the same length begins at a greater element.
      if (!found.empty() && (best.empty() || found.size() < best.size())) best = found;
    }
    std::vector<CycleElement> elements;
    for (std::size_t i = 0; i < best.size(); ++i) {
      const Place& lane = best[i];
      const Place& next = best[(i + 1) % best.size()];
      const Wait& wait = waits_of_.at(lane).at(next);
      const Wait& of_next = waits_of_.at(next).at(best[(i + 2) % best.size()]);
      elements.push_back({lane.first, named(wait.who), named(wait.thing), named(of_next.who)});
    }
    return elements;
  }

  /// Steps from each lane back to `least`, going only through greater lanes.
  std::map<Place, int> distances_to(const Place& least) const {
    std::map<Place, int> distance;
    std::deque<Place> todo{least};
    while (!todo.empty()) {
      const Place lane = todo.front();
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
  std::vector<Place> cycle_begun_at(const Place& least) const {
    const std::map<Place, int> distance = distances_to(least);
    if (!distance.count(least)) return {};
    std::vector<Place> path{least};
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
  std::map<Place, int> head_of_;       // instruction
  std::map<Place, int> to_be_issued_;  // heads that are not issued yet, and what that waits for
  std::map<Place, Waits> waits_of_;
};

}  // namespace

Stuck judge(const Program& program, const Run& run, bool fragment) {
  return Judge(program, run).run(fragment);
}

}  // namespace pipewright::reference
