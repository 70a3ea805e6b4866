// Connections that are made at their first use: the walk of the hosts (section 2.2), and batches
// that connect all their peers before anything moves (2.4).
#include <algorithm>
#include <set>
#include <utility>

#include "tests/reference/run.hpp"

namespace pipewright::reference {

void Run::walk_hosts() {
  // A host's list: the transfer ends in the order of issue; computations where they stand, but
  // behind what is issued at the start.
  std::vector<std::vector<int>> lists;
  for (std::size_t rank = 0; rank < program_.lists.size(); ++rank) {
    std::vector<int> list = program_.lists[rank];
    if (policy_.post == Post::AtStart) {
      std::stable_partition(list.begin(), list.end(),
                            [this](int id) { return is_posted_at_start(id); });
    }
    lists.push_back(std::move(list));
  }
  const auto connection = [this](int id) {
    const Instruction& end = program_.instructions[id];
    return end.is_send() ? std::pair(end.rank, end.peer) : std::pair(end.peer, end.rank);
  };
  const auto first_of = [&](std::pair<int, int> edge, int rank, bool send) {
    if (rank == kNobody) return kNobody;
    for (const int id : lists[rank]) {
      const Instruction& end = program_.instructions[id];
      if (end.is_transfer() && end.is_send() == send && connection(id) == edge) return id;
    }
    return kNobody;
  };
  std::vector<std::size_t> place(lists.size(), 0);
  // The ends of one operation (2.4) are come to together.
  const auto operation = [&](int id) {
    const std::vector<int>& batch = program_.instructions[id].batch;
    return batch.empty() ? std::vector<int>{id} : batch;
  };
  const auto has_come_to = [&](int id) {
    const std::vector<int> ends = operation(id);
    const int rank = program_.instructions[id].rank;
    const int first = *std::min_element(ends.begin(), ends.end());
    const auto at = std::find(lists[rank].begin(), lists[rank].end(), first) - lists[rank].begin();
    return static_cast<std::size_t>(at) <= place[rank];
  };
  const auto other_first = [&](int id) {
    const Instruction& end = program_.instructions[id];
    return first_of(connection(id), end.peer, !end.is_send());
  };
  /// Where it stands, and for what; nothing if it goes on.
  const auto stand = [&](int id) -> std::optional<Stand> {
    const Instruction& here = program_.instructions[id];
    if (here.cell[0].kind == "NEW_GROUP") {
      if (here.lacks_member) {
        // The first rank that has none, or whose host has not come to its own.
        for (int rank = 0; rank < static_cast<int>(lists.size()); ++rank) {
          const auto of_rank = [&](int other) { return program_.instructions[other].rank == rank; };
          const auto theirs = std::find_if(here.others.begin(), here.others.end(), of_rank);
          if (rank == here.rank) continue;
          if (theirs == here.others.end()) return Stand{id, kNobody};
          if (!has_come_to(*theirs)) return Stand{id, *theirs};
        }
      }
      for (const int other : here.others) {
        if (!has_come_to(other)) return Stand{id, other};
      }
      return std::nullopt;
    }
    if (!here.is_transfer()) return std::nullopt;
    for (const int end : operation(id)) {
      const int other = other_first(end);
      if (other == kNobody || !has_come_to(other)) return Stand{end, other};
    }
    return std::nullopt;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      if (place[rank] == lists[rank].size() || stand(lists[rank][place[rank]])) continue;
      ++place[rank];
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (place[rank] == lists[rank].size()) continue;
    hosts_[rank] = stand(lists[rank][place[rank]]);
    for (std::size_t i = place[rank]; i < lists[rank].size(); ++i) passed_[lists[rank][i]] = false;
  }
}

// --- Section 2.4, connections ---

/// The other rank's first end of a connection whose first end here this is; nothing: it is not.
std::optional<int> Run::connects_with(int id) const {
  const Instruction& end = program_.instructions[id];
  const auto first = [this](int rank, int peer, bool send) {
    if (rank == kNobody) return kNobody;
    for (const int other : issue_order(rank)) {
      const Instruction& o = program_.instructions[other];
      if (o.is_send() == send && o.peer == peer) return other;
    }
    return kNobody;
  };
  if (first(end.rank, end.peer, end.is_send()) != id) return std::nullopt;
  return first(end.peer, end.rank, !end.is_send());
}

bool Run::stands(int id) const {
  if (ended(id)) return true;
  return issued(id) && at_head(id) && (policy_.issue != Issue::Inline || has_inputs(id));
}

/// `assumed`: those whose operations are taken to connect.
bool Run::connected(int id, std::set<int>& assumed) const {
  if (!policy_.first_use || program_.instructions[id].batch.empty()) return true;
  const std::vector<int>& batch = program_.instructions[id].batch;
  if (!assumed.insert(batch.front()).second) return true;
  bool makes_one = false;
  for (const int end : batch) makes_one = makes_one || connects_with(end);
  if (!makes_one) return true;
  if (!std::all_of(batch.begin(), batch.end(), [this](int end) { return stands(end); }))
    return false;
  for (const int end : batch) {
    const std::optional<int> other = connects_with(end);
    if (!other) continue;
    if (*other == kNobody || !stands(*other) || !connected(*other, assumed)) return false;
  }
  return true;
}

bool Run::connected(int id) const {
  std::set<int> assumed;
  return connected(id, assumed);
}

}  // namespace pipewright::reference
