#include "tests/reference/lowering.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace pipewright::reference {

Placement::Placement(const Order& order) : ranks_(static_cast<int>(order.size())) {
  for (int rank = 0; rank < static_cast<int>(order.size()); ++rank) {
    for (const Cell& cell : order[rank]) {
      for (const Action& action : cell) {
        const std::pair key(action.stage, action.micro_batch);
        if (is_pass(action)) {
          computed_[key] = rank;
          stage_computed_[action.stage] = rank;
        }
        if (is_call(action) || is_part(action)) continue;
        if (is_send(action) || is_recv(action)) transferred_.emplace(key, rank);
        stage_named_.emplace(action.stage, rank);
      }
    }
  }
}

int Placement::rank_of(int stage, int micro_batch) const {
  const std::pair key(stage, micro_batch);
  if (computed_.count(key)) return computed_.at(key);
  if (transferred_.count(key)) return transferred_.at(key);
  if (stage_computed_.count(stage)) return stage_computed_.at(stage);
  if (stage_named_.count(stage)) return stage_named_.at(stage);
  return kOutside;
}

int Placement::peer_of(const Action& end) const {
  if (is_named_transfer(end)) return end.peer < ranks_ ? end.peer : kOutside;
  const bool upwards = end.kind == "SEND_F" || end.kind == "RECV_B";
  return rank_of(end.stage + (upwards ? 1 : -1), end.micro_batch);
}

bool has_transfers(const Order& order) {
  // Or waits for sends (1.1).
  const auto is_written = [](const Cell& cell) {
    return is_transfer(cell) || is_batch(cell) ||
           (cell.size() == 1 && is_wait(cell[0]) && cell[0].micro_batch >= 0);
  };
  for (const Row& row : order) {
    if (std::any_of(row.begin(), row.end(), is_written)) return true;
  }
  return false;
}

namespace {

int number_of_stages(const Order& order) {
  int stages = 0;
  for (const Row& row : order) {
    for (const Cell& cell : row) {
      for (const Action& action : cell) stages = std::max(stages, action.stage + 1);
    }
  }
  return stages;
}

/// The state of the passes of 1.1.
class CommunicationAdder {
 public:
  explicit CommunicationAdder(const Order& order)
      : order_(order),
        placement_(order),
        stages_(number_of_stages(order)),
        next_(order.size(), 0),
        lists_(order.size()) {}

  Order run() {
    while (!finished()) {
      bool took_something = false;
      for (std::size_t rank = 0; rank < order_.size(); ++rank) {
        if (next_[rank] < order_[rank].size() && inputs_produced(order_[rank][next_[rank]])) {
          take(rank);
          took_something = true;
        }
      }
      if (!took_something) take(lowest_unfinished());
    }
    return lists_;
  }

 private:
  bool finished() const { return lowest_unfinished() == order_.size(); }

  std::size_t lowest_unfinished() const {
    std::size_t rank = 0;
    while (rank < order_.size() && next_[rank] == order_[rank].size()) ++rank;
    return rank;
  }

  bool inputs_produced(const Cell& cell) const {
    std::set<std::string> there = taken_;
    // Of a pair, one action may give the other its input (section 3).
    for (const Action& action : cell) there.insert(name(action));
    for (const Action& a : cell) {
      if (a.kind == "F" && a.stage > 0 && !there.count(name(a.stage - 1, "F", a.micro_batch)))
        return false;
      if ((a.kind == "I" || a.kind == "B") && a.stage < stages_ - 1 &&
          !there.count(name(a.stage + 1, "I", a.micro_batch)) &&
          !there.count(name(a.stage + 1, "B", a.micro_batch))) {
        return false;
      }
    }
    return true;
  }

  void take(std::size_t rank) {
    const Cell& cell = order_[rank][next_[rank]++];
    if (cell.empty()) return;  // an idle slot takes a turn and leaves nothing
    lists_[rank].push_back(cell);
    for (const Action& a : cell) taken_.insert(name(a));
    for (const Action& a : cell) {
      if (a.kind == "F" && a.stage < stages_ - 1)
        transfer(rank, a, "SEND_F", a.stage + 1, "RECV_F");
      if ((a.kind == "I" || a.kind == "B") && a.stage > 0)
        transfer(rank, a, "SEND_B", a.stage - 1, "RECV_B");
    }
  }

  void transfer(std::size_t rank, const Action& a, const char* send, int to_stage,
                const char* recv) {
    const int peer = placement_.rank_of(to_stage, a.micro_batch);
    if (peer == Placement::kOutside || peer == static_cast<int>(rank)) return;
    lists_[rank].push_back({Action{a.stage, send, a.micro_batch, -1}});
    lists_[peer].push_back({Action{to_stage, recv, a.micro_batch, -1}});
  }

  const Order& order_;
  Placement placement_;
  int stages_;
  std::vector<std::size_t> next_;
  Order lists_;
  std::set<std::string> taken_;
};

/// Whether the action takes what this RECV brings (1.2).
bool consumes(const Action& action, const Action& recv) {
  if (action.stage != recv.stage || action.micro_batch != recv.micro_batch) return false;
  if (recv.kind == "RECV_F") return action.kind == "F";
  return recv.kind == "RECV_B" && (action.kind == "I" || action.kind == "B");
}

/// A RECV that some computation may take.
bool is_received_for_use(const Cell& cell) {
  return is_transfer(cell) && is_recv(cell[0]) && !is_named_transfer(cell[0]);
}

Row deferred(const Row& row) {
  std::vector<Action> receives;
  for (const Cell& cell : row) {
    if (is_received_for_use(cell)) receives.push_back(cell[0]);
  }
  std::vector<bool> placed(receives.size(), false);
  Row list;
  for (const Cell& cell : row) {
    if (is_received_for_use(cell)) continue;
    for (const Action& action : cell) {
      for (std::size_t i = 0; i < receives.size(); ++i) {
        if (placed[i] || !consumes(action, receives[i])) continue;
        list.push_back({receives[i]});
        placed[i] = true;
      }
    }
    list.push_back(cell);
  }
  for (std::size_t i = 0; i < receives.size(); ++i) {
    if (!placed[i]) list.push_back({receives[i]});
  }
  return list;
}

/// The place of a transfer end in a run under even-odd (1.3).
int turn(bool even_rank, const Cell& cell) {
  static const std::vector<std::string> even{"SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  static const std::vector<std::string> odd{"RECV_F", "SEND_F", "RECV_B", "SEND_B"};
  const std::vector<std::string>& turns = even_rank ? even : odd;
  return static_cast<int>(std::find(turns.begin(), turns.end(), cell[0].kind) - turns.begin());
}

}  // namespace

Order add_communication(const Order& order) {
  if (!has_transfers(order)) return CommunicationAdder(order).run();
  Order lists = order;
  for (Row& row : lists) std::erase_if(row, [](const Cell& cell) { return cell.empty(); });
  return lists;
}

Order post_receives(const Order& order, Post post) {
  if (post != Post::Deferred) return order;
  Order lists;
  for (const Row& row : order) lists.push_back(deferred(row));
  return lists;
}

Order order_runs(const Order& order, RunOrder run_order, std::size_t devices) {
  if (run_order == RunOrder::AsLowered) return order;
  Order lists = order;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    Row& row = lists[rank];
    const bool even = rank / devices % 2 == 0;
    for (auto first = row.begin(); first != row.end();) {
      const auto last = std::find_if_not(first, row.end(), [](const Cell& cell) {
        return is_transfer(cell) && !is_named_transfer(cell[0]);
      });
      std::stable_sort(first, last, [even](const Cell& a, const Cell& b) {
        return turn(even, a) < turn(even, b);
      });
      first = last == row.end() ? last : last + 1;
    }
  }
  return lists;
}

Order lower(const Order& order, const Policy& policy, std::size_t devices) {
  const Order lists = add_communication(order);
  if (policy.batches != Batches::Apart && policy.issue != Issue::Grouped &&
      policy.post == Post::Early && policy.run_order == RunOrder::AsLowered)
    return lists;
  return order_runs(post_receives(without_batches(lists), policy.post), policy.run_order, devices);
}

}  // namespace pipewright::reference
