#include "tests/reference/cause.hpp"

#include <map>
#include <optional>

namespace pipewright::reference {
namespace {

class Computations {
 public:
  explicit Computations(const Program& program) : program_(program) {
    for (std::size_t id = 0; id < program.instructions.size(); ++id) {
      for (const Action& action : program.instructions[id].cell)
        made_by_.emplace(name(action), static_cast<int>(id));
    }
    take_all();
  }

  std::vector<CauseElement> cause() {
    for (std::size_t length = 1; length <= program_.lists.size(); ++length) {
      for (const auto& [rank, head] : heads_) {
        std::vector<int> path{rank};
        if (close(path, length)) return elements(path);
      }
    }
    return {};
  }

 private:
  struct Input {
    int producer = kNobody;
    std::string through;
  };

  /// A RECV stands for what its tensor is made by.
  Input input(int id) const {
    const Instruction& instruction = program_.instructions[id];
    if (instruction.is_send()) return {};  // a HOST_SYNC's
    if (!instruction.is_recv()) return {id, ""};
    const Action& end = instruction.cell[0];
    const bool forward = end.kind == "RECV_F";
    const int stage = end.stage + (forward ? -1 : 1);
    for (const char* kind : {"F", "I", "B"}) {
      if ((std::string(kind) == "F") != forward) continue;
      const auto found = made_by_.find(name(stage, kind, end.micro_batch));
      if (found != made_by_.end())
        return {found->second, name(stage, forward ? "SEND_F" : "SEND_B", end.micro_batch)};
    }
    return {};
  }

  std::vector<Input> unmet(int id) const {
    std::vector<Input> found;
    for (const int each : program_.instructions[id].inputs) {
      const Input made = input(each);
      if (made.producer != kNobody && made.producer != id && !ended_.count(made.producer))
        found.push_back(made);
    }
    return found;
  }

  void take_all() {
    for (bool something = true; something;) {
      something = false;
      heads_.clear();
      for (std::size_t rank = 0; rank < program_.lists.size(); ++rank) {
        for (const int id : program_.lists[rank]) {
          if (program_.instructions[id].is_transfer() || ended_.count(id)) continue;
          if (!unmet(id).empty()) {
            heads_[static_cast<int>(rank)] = id;
            break;
          }
          ended_[id] = true;
          something = true;
        }
      }
    }
  }

  /// What the head of a rank waits for behind that of another, the first in program order.
  std::optional<Input> wait(int rank, int behind) const {
    std::optional<Input> first;
    for (const Input& each : unmet(heads_.at(rank))) {
      if (program_.instructions[each.producer].rank != behind) continue;
      if (!first || each.producer < first->producer) first = each;
    }
    return first;
  }

  /// Goes on along the waits over greater ranks until the path is a cycle of this length.
  bool close(std::vector<int>& path, std::size_t length) const {
    if (path.size() == length) return wait(path.back(), path.front()).has_value();
    for (const auto& [rank, head] : heads_) {
      if (rank <= path.front() || !wait(path.back(), rank)) continue;
      path.push_back(rank);
      if (close(path, length)) return true;
      path.pop_back();
    }
    return false;
  }

  std::vector<CauseElement> elements(const std::vector<int>& path) const {
    std::vector<CauseElement> found;
    for (std::size_t i = 0; i < path.size(); ++i) {
      const int next = path[(i + 1) % path.size()];
      const Input what = *wait(path[i], next);
      found.push_back({path[i], text(program_.instructions[heads_.at(path[i])].cell),
                       text(program_.instructions[what.producer].cell), what.through,
                       text(program_.instructions[heads_.at(next)].cell)});
    }
    return found;
  }

  const Program& program_;
  std::map<std::string, int> made_by_;  // an action's name, its first instruction
  std::map<int, bool> ended_;
  std::map<int, int> heads_;  // by rank
};

}  // namespace

std::vector<CauseElement> cause_of(const Program& program) { return Computations(program).cause(); }

}  // namespace pipewright::reference
