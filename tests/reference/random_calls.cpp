#include "tests/reference/random_calls.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace pipewright::reference {
namespace {

class Caller {
 public:
  Caller(Dice& dice, Order& order)
      : dice_(dice), order_(order), ranks_(static_cast<int>(order.size())), next_(order.size(), 0) {
    streams_ = dice.chance(40);
    faulty_ = dice.chance(50);
    formats_ = dice.chance(30);
    for (int g = dice.between(1, 3); g > 0; --g) draw_group("g" + std::to_string(g));
  }

  Groups run() {
    for (int events = dice_.between(1, 8); events > 0; --events) {
      const int what = dice_.below(10);
      if (what < 6) {
        collective();
      } else if (what == 6) {
        for (int rank = 0; rank < ranks_; ++rank) put(rank, {-1, "NEW_GROUP", -1, -1, "g1"});
      } else if (what == 7) {
        put(dice_.below(ranks_), {-1, "HOST_SYNC", -1, -1, "", "", "", "", stream()});
      } else if (ranks_ > 1) {
        transfer();
      }
    }
    if (faulty_) {
      for (int times = dice_.between(1, 2); times > 0; --times) damage();
    }
    return named_;
  }

 private:
  void draw_group(const std::string& name) {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (dice_.chance(70)) ranks.push_back(rank);
    }
    if (ranks.empty()) ranks.push_back(dice_.below(ranks_));
    if (ranks.size() == 1 || dice_.chance(50)) named_[name] = ranks;
    groups_.emplace_back(name, ranks);
  }

  std::string stream() {
    return streams_ && dice_.chance(60) ? std::to_string(dice_.between(1, 2)) : "";
  }

  /// Behind what was put there before, so that all ranks have the calls in one order.
  void put(int rank, const Action& call) {
    Row& row = order_[static_cast<std::size_t>(rank)];
    int& next = next_[static_cast<std::size_t>(rank)];
    const int at = dice_.between(next, static_cast<int>(row.size()));
    row.insert(row.begin() + at, Cell{call});
    next = at + 1;
  }

  void format(Action& call) {
    if (!formats_ || dice_.chance(40)) return;
    call.shape = dice_.chance(70) ? "4x8" : "16";
    if (dice_.chance(80)) call.dtype = dice_.chance(70) ? "float32" : "int16";
  }

  void collective() {
    static const char* const kinds[] = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL",
                                        "BROADCAST"};
    const auto& [group, ranks] = groups_[dice_.below(static_cast<int>(groups_.size()))];
    Action call{-1, kinds[dice_.below(5)], -1, -1, group, std::to_string(dice_.below(3))};
    if (dice_.chance(80)) format(call);
    for (const int rank : ranks) {
      call.stream = stream();
      put(rank, call);
    }
  }

  void transfer() {
    const int from = dice_.below(ranks_), to = (from + dice_.between(1, ranks_ - 1)) % ranks_;
    Action end{-1, "SEND", -1, -1, "", dice_.chance(70) ? "x" : "y"};
    format(end);
    end.stream = stream();
    end.peer = to;
    put(from, end);
    if (dice_.chance(10)) format(end);
    end.kind = "RECV";
    end.stream = stream();
    end.peer = from;
    put(to, end);
  }

  void damage() {
    std::vector<std::pair<std::size_t, std::size_t>> places;  // of calls
    for (std::size_t rank = 0; rank < order_.size(); ++rank) {
      for (std::size_t i = 0; i < order_[rank].size(); ++i) {
        const Cell& cell = order_[rank][i];
        if (cell.size() == 1 && is_call(cell[0])) places.emplace_back(rank, i);
      }
    }
    if (places.empty()) return;
    const auto [rank, at] = places[dice_.below(static_cast<int>(places.size()))];
    Row& row = order_[rank];
    const auto place = row.begin() + static_cast<std::ptrdiff_t>(at);
    switch (dice_.below(4)) {
      case 0:
        row.erase(place);
        return;
      case 1: {
        const Cell cell = *place;
        row.erase(place);
        row.insert(row.begin() + dice_.below(static_cast<int>(row.size()) + 1), cell);
        return;
      }
      case 2:
        if (is_group_collective((*place)[0])) (*place)[0].kind = "ALL_REDUCE";
        return;
      default:
        if (is_group_collective((*place)[0])) (*place)[0].data = "9";
    }
  }

  Dice& dice_;
  Order& order_;
  const int ranks_;
  std::vector<int> next_;  // by rank: where the next call may stand
  bool streams_ = false, faulty_ = false, formats_ = false;
  std::vector<std::pair<std::string, std::vector<int>>> groups_;
  Groups named_;
};

/// Joins neighbouring transfer ends, where one of them names its rank.
void batch(Dice& dice, Order& order) {
  const auto is_end = [](const Cell& cell) { return is_transfer(cell) || is_batch(cell); };
  for (Row& row : order) {
    for (std::size_t i = 0; i + 1 < row.size();) {
      const bool named = is_end(row[i]) && is_transfer(row[i + 1]) &&
                         (is_call(row[i][0]) || is_call(row[i + 1][0]));
      if (!named || !dice.chance(60)) {
        ++i;
        continue;
      }
      row[i].push_back(row[i + 1][0]);
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
}

}  // namespace

Groups add_calls(Dice& dice, Order& order) {
  Groups groups = Caller(dice, order).run();
  if (dice.chance(50)) batch(dice, order);
  // A row without any action is no rank, and the calls name ranks by number.
  for (Row& row : order) {
    const auto acts = [](const Cell& cell) { return !cell.empty(); };
    if (std::none_of(row.begin(), row.end(), acts)) row.push_back({{-1, "HOST_SYNC", -1, -1}});
  }
  return groups;
}

}  // namespace pipewright::reference
