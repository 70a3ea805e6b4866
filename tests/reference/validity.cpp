#include "tests/reference/validity.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "tests/reference/lowering.hpp"
#include "tests/reference/parts.hpp"

namespace pipewright::reference {
namespace {

/// Where every action stands. Each of the checks below is one clause of the sentence in section 7.
class Inspector {
 public:
  explicit Inspector(const Order& lists) : lists_(lists) {
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      for (const Cell& cell : lists[rank]) {
        for (const Action& action : cell) {
          ranks_of_[name(action)].push_back(static_cast<int>(rank));
          stages_ = std::max(stages_, action.stage + 1);
          micro_batches_ = std::max(micro_batches_, action.micro_batch + 1);
        }
      }
    }
  }

  std::string run() const {
    if (only_calls()) return "";
    for (const auto& check : {&Inspector::doubled, &Inspector::missing, &Inspector::wrong_rank,
                              &Inspector::transfers, &Inspector::versions, &Inspector::reductions,
                              &Inspector::waits, &Inspector::idle_rank, &Inspector::too_early}) {
      const std::string complaint = (this->*check)();
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  /// 3.5: which part of the parameters the device holds.
  static int place_along_tp(const Heading& heading, int rank) {
    for (const auto& [axis, devices] : heading.devices) {
      if (axis == "tp") return rank % devices;
      rank /= devices;
    }
    return 0;
  }

  /// Sections 3.2 and 7, where replicas divide gradients, or weights too, or form groups.
  std::string divided(const Heading& heading) const {
    if (heading.zero < 2 && heading.replica_groups == 1) return "";
    for (int s = 0; s < stages_; ++s) {
      std::set<int> ranks;  // one of those that hold different parts of the stage
      bool gathers = false, reduces = false;
      for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
        for (const Cell& cell : lists_[rank]) {
          for (const Action& a : cell) {
            if (a.stage != s) continue;
            gathers = gathers || a.kind == "UNSHARD";
            reduces = reduces || a.kind == "REDUCE_GRAD";
            if (is_pass(a) && place_along_tp(heading, static_cast<int>(rank)) == 0)
              ranks.insert(static_cast<int>(rank));
          }
        }
      }
      if (ranks.size() < 2 || !gathers) continue;
      if (static_cast<int>(ranks.size()) % heading.replica_groups != 0)
        return "the replicas of stage " + std::to_string(s) + " form no equal groups";
      if (heading.zero < 2) continue;
      for (const Row& row : lists_) {
        std::string left;
        bool weights = false;
        for (const Cell& cell : row) {
          for (const Action& a : cell) {
            if (a.kind == "OPT") weights = false;
            if (a.stage != s) continue;
            if (a.kind == "UNSHARD" || a.kind == "RESHARD") weights = a.kind == "UNSHARD";
            if (a.kind == "REDUCE_GRAD") left.clear();
            if (a.kind == "W" || a.kind == "B") left = name(a);
            if (is_pass(a) && !weights && heading.zero == 3) return name(a) + " has no weights";
          }
        }
        if (reduces && !left.empty()) return left + " has no REDUCE_GRAD behind it";
      }
    }
    return "";
  }

  /// Section 3.3; of lists with parts.
  std::string calls(const Heading& heading) const {
    const int ranks = static_cast<int>(lists_.size());
    std::map<std::string, std::set<int>> named_by;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Cell& cell : lists_[rank]) {
        for (const Action& a : cell) {
          if (is_named_transfer(a) && (a.peer >= ranks || a.peer == rank))
            return name(a) + " has no other rank at its other end";
          if (!is_group_collective(a) || is_axis(heading.mesh, a.group) ||
              is_axis(heading.devices, a.group))
            continue;
          named_by[a.group].insert(rank);
          const auto given = heading.groups.find(a.group);
          if (given != heading.groups.end() &&
              std::count(given->second.begin(), given->second.end(), rank) == 0)
            return name(a) + " is called by a rank outside the group";
        }
      }
    }
    for (const auto& [group, callers] : named_by) {
      if (callers.size() == 1 && !heading.groups.count(group))
        return "nobody else is in group " + group;
    }
    return "";
  }

 private:
  bool has(int stage, const std::string& kind, int micro_batch) const {
    return ranks_of_.count(name(stage, kind, micro_batch)) > 0;
  }
  int rank_of(int stage, const std::string& kind, int micro_batch) const {
    return ranks_of_.at(name(stage, kind, micro_batch)).front();
  }

  std::string doubled() const {
    for (const Row& row : lists_) {
      for (const Cell& cell : row) {
        for (const Action& a : cell) {
          // A rank may gather and free its weights as often as it likes; OPT has one on every rank.
          const bool once = !is_call(a) && (is_pass(a) || is_send(a) || is_recv(a) ||
                                            (is_wait(a) && a.micro_batch >= 0));
          if (once && ranks_of_.at(name(a)).size() > 1) return name(a) + " is doubled";
        }
      }
    }
    return "";
  }

  std::string missing() const {
    for (int s = 0; s < stages_; ++s) {
      for (int m = 0; m < micro_batches_; ++m) {
        if (!has(s, "F", m)) return name(s, "F", m) + " is missing";
        if (is_forward_only(lists_)) continue;
        const bool fused = has(s, "B", m), inputs = has(s, "I", m), weights = has(s, "W", m);
        if (fused && (inputs || weights)) return name(s, "B", m) + " is doubled by its I or W";
        if (!fused && !inputs) return name(s, "B", m) + " is missing";
        if (!fused && !weights) return name(s, "W", m) + " is missing";
      }
    }
    return "";
  }

  std::string wrong_rank() const {
    std::set<std::pair<int, int>> computes;  // stage, rank
    for (int s = 0; s < stages_; ++s) {
      for (int m = 0; m < micro_batches_; ++m) computes.emplace(s, rank_of(s, "F", m));
    }
    for (const auto& [action, ranks] : ranks_of_) {
      const Action a = parse_cell(action)[0];
      for (const int rank : ranks) {
        const bool per_micro_batch = a.micro_batch >= 0;
        const bool wrong = per_micro_batch ? rank != rank_of(a.stage, "F", a.micro_batch)
                                           : a.stage >= 0 && !computes.count({a.stage, rank});
        if (wrong) return action + " stands on the wrong rank";
      }
    }
    return "";
  }

  std::string transfers() const {
    for (const auto& [action, ranks] : ranks_of_) {
      const Action a = parse_cell(action)[0];
      if (is_call(a) || (!is_send(a) && !is_recv(a))) continue;
      const int other = a.kind == "SEND_F" || a.kind == "RECV_B" ? a.stage + 1 : a.stage - 1;
      const std::string other_kind = (is_send(a) ? "RECV_" : "SEND_") + a.kind.substr(5);
      if (other < 0 || !has(other, other_kind, a.micro_batch)) return action + " has no partner";
    }
    return missing_transfer();
  }

  /// A computation that takes its input from another rank needs the RECV.
  std::string missing_transfer() const {
    for (int s = 0; s + 1 < stages_; ++s) {
      for (int m = 0; m < micro_batches_; ++m) {
        if (rank_of(s, "F", m) == rank_of(s + 1, "F", m)) continue;
        if (!has(s + 1, "RECV_F", m)) return name(s + 1, "RECV_F", m) + " is missing";
        if (!is_forward_only(lists_) && !has(s, "RECV_B", m))
          return name(s, "RECV_B", m) + " is missing";
      }
    }
    return "";
  }

  /// Sections 3.1 and 7.
  std::string versions() const {
    if (!is_asynchronous(lists_)) return "";
    std::map<std::pair<int, int>, std::set<int>> named;  // by stage and micro-batch
    for (const Row& row : lists_) {
      int updates = 0;
      for (const Cell& cell : row) {
        for (const Action& a : cell) {
          if (a.kind == "OPT") ++updates;
          if (!is_pass(a)) continue;
          if (a.version > updates) return text({a}) + " does not exist yet";
          if (a.version < 0 && a.kind != "W") return text({a}) + " names no version";
          if (a.version >= 0) named[{a.stage, a.micro_batch}].insert(a.version);
        }
      }
    }
    for (const auto& [tensor, versions] : named) {
      if (versions.size() > 1) return name(tensor.first, "F", tensor.second) + " and its backward";
    }
    return "";
  }

  /// Sections 3.2 and 7.
  std::string reductions() const {
    for (int s = 0; s < stages_; ++s) {
      for (const char* kind : {"REDUCE_GRAD", "UNSHARD"}) {
        std::map<int, int> by_rank;
        for (int m = 0; m < micro_batches_; ++m) by_rank[rank_of(s, "F", m)] = 0;
        const auto found = ranks_of_.find(name(s, kind, -1));
        if (found == ranks_of_.end()) continue;
        for (const int rank : found->second) ++by_rank[rank];
        for (const auto& [rank, count] : by_rank) {
          if (count != by_rank.begin()->second) return name(s, kind, -1) + " lacks a member";
        }
      }
    }
    return "";
  }

  /// Whole orders of calls alone lack nothing.
  bool only_calls() const {
    bool some = false;
    for (const Row& row : lists_) {
      for (const Cell& cell : row) {
        for (const Action& a : cell) {
          if (!is_call(a)) return false;
          some = true;
        }
      }
    }
    return some;
  }

  /// Each wait has one of its own to wait for, before it in its list.
  std::string waits() const {
    for (const Row& row : lists_) {
      std::multiset<std::string> open;
      for (const Cell& cell : row) {
        for (const Action& a : cell) {
          if (is_send(a) || a.kind == "REDUCE_GRAD") open.insert(name(a));
          if (!is_wait(a)) continue;
          const auto found = open.find(awaited(a));
          if (found == open.end()) return name(a) + " stands before " + awaited(a);
          open.erase(found);
        }
      }
    }
    return "";
  }

  std::string idle_rank() const {
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
      bool computes = false;
      for (const Cell& cell : lists_[rank]) {
        for (const Action& a : cell) computes = computes || is_pass(a);
      }
      if (!computes) return "rank " + std::to_string(rank) + " computes nothing";
    }
    return "";
  }

  /// Section 3: the wait of a list for what stands further on in the same list. One cell is one
  /// moment, so a pair may hold both.
  std::string too_early() const {
    for (const Row& row : lists_) {
      std::set<std::string> taken;
      for (const Cell& cell : row) {
        for (const Action& a : cell) taken.insert(name(a));
        for (const Action& a : cell) {
          if (a.kind != "I" && a.kind != "B" && a.kind != "W") continue;
          const std::string needed = name(a.stage, a.kind == "W" ? "I" : "F", a.micro_batch);
          if (!taken.count(needed)) return name(a) + " stands before " + needed;
        }
      }
    }
    return "";
  }

  const Order& lists_;
  std::map<std::string, std::vector<int>> ranks_of_;
  int stages_ = 0, micro_batches_ = 1;  // an order that names no micro-batch is short of m0
};

}  // namespace

std::string complaint_about(const Order& lists, const Heading& heading) {
  const Order all = with_parts(lists, heading.parts);
  const Inspector inspector(lists);
  for (const std::string& complaint :
       {Inspector(all).calls(heading), inspector.run(), inspector.divided(heading)}) {
    if (!complaint.empty()) return complaint;
  }
  return "";
}

}  // namespace pipewright::reference
