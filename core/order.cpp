#include "core/order.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/order_versions.hpp"

namespace pipewright {
namespace {

constexpr RankId kNoRank(-1);

/// The stage at the other end of a transfer.
int peer_stage(const Action& a) {
  return a.stage.value + (a.kind == ActionKind::SendF || a.kind == ActionKind::RecvB ? 1 : -1);
}

[[noreturn]] void fail_at_cell(std::string_view line, const std::string& file, int row, int cell,
                               std::size_t column, const std::string& expected) {
  // The arrow stays within a narrow terminal however long the row is.
  constexpr std::size_t kBefore = 30, kShown = 64;
  const std::size_t from = column > kBefore ? column - kBefore : 0;
  const std::string shown = (from > 0 ? "…" : "") + std::string(line.substr(from, kShown));
  throw InputError(file, "row " + std::to_string(row) + ", cell " + std::to_string(cell),
                   expected + "\n  " + shown + "\n  " +
                       std::string(column - from + (from > 0 ? 1 : 0), ' ') + "^");
}

std::vector<Cell> read_row(std::string_view line, const std::string& file, int row) {
  std::vector<Cell> cells;
  int number = 0;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    const std::string_view text = line.substr(begin, end - begin);
    ++number;
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) {
      cells.push_back({{.kind = ActionKind::Idle, .stage = {}, .micro_batch = {}}, std::nullopt});
    } else {
      const auto cell = parse_cell(text);
      if (!cell) {
        fail_at_cell(line, file, row, number, begin + first,
                     "expected an action such as 2F0, 1SEND_B3 or (0F7;7B3)OVERLAP_F_B");
      }
      cells.push_back(*cell);
    }
    begin = end + 1;
  }
  while (!cells.empty() && cells.back().action.kind == ActionKind::Idle) cells.pop_back();
  return cells;
}

template <class Visit>
void for_each_action(const Order& order, Visit visit) {
  for (int r = 0; r < order.rank_count(); ++r) {
    for (const Cell& cell : order.ranks[static_cast<std::size_t>(r)]) {
      visit(RankId(r), cell.action);
      if (cell.partner) visit(RankId(r), *cell.partner);
    }
  }
}

/// Largest stage and micro-batch named; a transfer end names its peer's stage too.
std::pair<int, int> extent(const Order& order) {
  int stages = 0, micro_batches = 0;
  for_each_action(order, [&](RankId, const Action& a) {
    if (a.kind == ActionKind::Opt || a.kind == ActionKind::Idle) return;
    stages = std::max(stages, a.stage.value + 1);
    if (is_transfer(a.kind)) stages = std::max(stages, peer_stage(a) + 1);
    if (has_micro_batch(a.kind)) micro_batches = std::max(micro_batches, a.micro_batch.value + 1);
  });
  return {stages, micro_batches};
}

/// A stage lives where it computes; where no row computes it (a fragment), in the first row that
/// names it.
std::vector<RankId> homes_of(const Order& order, int stages) {
  std::vector<RankId> homes(static_cast<std::size_t>(stages), kNoRank);
  const auto home = [&](const Action& a) -> RankId& {
    return homes[static_cast<std::size_t>(a.stage.value)];
  };
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_compute(a.kind)) home(a) = rank;
  });
  for_each_action(order, [&](RankId rank, const Action& a) {
    const bool of_a_stage = a.kind != ActionKind::Opt && a.kind != ActionKind::Idle;
    if (of_a_stage && home(a) == kNoRank) home(a) = rank;
  });
  return homes;
}

/// The same for each micro-batch: the row that computes it, else the row of its transfer ends, else
/// the stage's.
std::vector<std::vector<RankId>> homes_by_micro_batch(const Order& order,
                                                      const std::vector<RankId>& homes,
                                                      int micro_batches) {
  std::vector<std::vector<RankId>> table(
      homes.size(), std::vector<RankId>(static_cast<std::size_t>(micro_batches), kNoRank));
  const auto home = [&](const Action& a) -> RankId& {
    return table[static_cast<std::size_t>(a.stage.value)]
                [static_cast<std::size_t>(a.micro_batch.value)];
  };
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_compute(a.kind)) home(a) = rank;
  });
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_transfer(a.kind) && home(a) == kNoRank) home(a) = rank;
  });
  for (std::size_t s = 0; s < table.size(); ++s) {
    std::replace(table[s].begin(), table[s].end(), kNoRank, homes[s]);
  }
  return table;
}

}  // namespace

Placement placement_of_rows(const Order& order, int stages, int micro_batches) {
  auto homes = homes_of(order, stages);
  bool elsewhere = false;
  for_each_action(order, [&](RankId rank, const Action& a) {
    elsewhere |= has_micro_batch(a.kind) && homes[static_cast<std::size_t>(a.stage.value)] != rank;
  });
  if (elsewhere) {
    auto table = homes_by_micro_batch(order, homes, micro_batches);
    for (std::size_t s = 0; s < table.size(); ++s) {
      const auto moved = [&](RankId rank) { return rank != homes[s]; };
      if (std::any_of(table[s].begin(), table[s].end(), moved)) {
        return Placement::explicit_micro_batches(std::move(table), order.rank_count());
      }
    }
  }
  return Placement::explicit_stages(std::move(homes), order.rank_count());
}

bool Order::has_transfers() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(),
                       [](const Cell& c) { return is_transfer(c.action.kind); });
  });
}

Order read_order_csv(std::string_view text, const std::string& file) {
  constexpr int kMostMicroBatches = 1 << 24;
  constexpr int kMostStages = 65535;
  constexpr std::int64_t kMostPairs = std::int64_t{1} << 28;
  Order order;
  int row = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++row;
    auto cells = read_row(text.substr(begin, end - begin), file, row);
    if (!cells.empty()) order.ranks.push_back(std::move(cells));
    begin = end + 1;
  }
  if (order.ranks.empty()) {
    throw InputError(file, "", "expected one row of actions for each rank, found none");
  }
  const auto [stages, micro_batches] = extent(order);
  if (stages > kMostStages || micro_batches > kMostMicroBatches ||
      std::int64_t{stages} * std::max(1, micro_batches) > kMostPairs) {
    throw InputError(file, "",
                     "too large: " + std::to_string(stages) + " stages and " +
                         std::to_string(micro_batches) +
                         " micro-batches are named; check for a mistyped number");
  }
  for_each_action(order, [&](RankId rank, const Action& a) {
    if (is_transfer(a.kind) && peer_stage(a) < 0) {
      throw InputError(file, "rank " + std::to_string(rank.value),
                       to_string(a) + " has no stage at its other end: stage 0 is the first");
    }
  });
  order.micro_batches = std::max(1, micro_batches);
  order.placement = placement_of_rows(order, std::max(1, stages), order.micro_batches);
  return order;
}

std::string write_order_csv(const Order& order) {
  std::string text;
  for (const auto& row : order.ranks) {
    bool first = true;
    for (const Cell& cell : row) {
      if (!first) text += ',';
      text += to_string(cell);
      first = false;
    }
    text += '\n';
  }
  return text;
}

namespace {

/// Counts of each computation and place of each transfer end, gathered once.
class OrderProblems {
 public:
  explicit OrderProblems(const Order& order)
      : order_(order),
        counts_(static_cast<std::size_t>(order.stages()) *
                static_cast<std::size_t>(order.micro_batches)) {}

  std::vector<std::string> find() {
    for_each_action(order_, [this](RankId rank, const Action& a) { count(rank, a); });
    for (int s = 0; s < order_.stages() && !full(); ++s) {
      for (int m = 0; m < order_.micro_batches && !full(); ++m) judge(s, m);
    }
    if (order_.has_transfers()) judge_transfers();
    for (std::string& problem : version_problems(order_)) say(std::move(problem));
    for (std::string& problem : reduction_problems(order_)) say(std::move(problem));
    return std::move(problems_);
  }

 private:
  using Counts = std::array<std::uint8_t, 4>;  // F I W B
  static constexpr std::size_t kMost = 20;     // enough to see the pattern

  bool full() const { return problems_.size() >= kMost; }
  void say(std::string problem) {
    if (!full()) problems_.push_back(std::move(problem));
  }
  Counts& counts(int stage, int micro_batch) {
    return counts_[static_cast<std::size_t>(stage) *
                       static_cast<std::size_t>(order_.micro_batches) +
                   static_cast<std::size_t>(micro_batch)];
  }

  void count(RankId rank, const Action& a) {
    if (is_transfer(a.kind)) {
      transfers_.push_back({rank, a});
      return;
    }
    if (a.kind == ActionKind::Unshard || a.kind == ActionKind::Reshard ||
        a.kind == ActionKind::ReduceGrad)
      return judge_state(rank, a);
    if (!is_compute(a.kind)) return;
    if (a.stage.value >= order_.stages() || a.micro_batch.value >= order_.micro_batches) {
      say(to_string(a) + " on rank " + std::to_string(rank.value) +
          " names a stage or micro-batch that does not exist");
      return;
    }
    auto& seen = counts(a.stage.value, a.micro_batch.value)[static_cast<std::size_t>(a.kind)];
    if (seen < 255) ++seen;
    const RankId home = order_.placement.rank_of(a.stage, a.micro_batch);
    if (home != rank) {
      say(to_string(a) + " stands on rank " + std::to_string(rank.value) + ", but stage " +
          std::to_string(a.stage.value) + " is on rank " + std::to_string(home.value));
    }
  }

  /// UNSHARD, RESHARD and REDUCE_GRAD belong on a rank that holds the stage.
  void judge_state(RankId rank, const Action& a) {
    for (int m = 0; m < order_.micro_batches; ++m) {
      if (a.stage.value < order_.stages() &&
          order_.placement.rank_of(a.stage, MicroBatchId(m)) == rank)
        return;
    }
    say(to_string(a) + " stands on rank " + std::to_string(rank.value) +
        ", which does not hold stage " + std::to_string(a.stage.value));
  }

  void judge(int stage, int micro_batch) {
    const auto [f, i, w, b] = counts(stage, micro_batch);
    const std::string s = std::to_string(stage), m = std::to_string(micro_batch);
    if (f == 0) say(s + "F" + m + " is missing");
    if (f > 1) say(s + "F" + m + " is there " + std::to_string(f) + " times");
    if (b == 1 && i == 0 && w == 0) return;
    if (b == 0 && i == 1 && w == 1) return;
    if (b + i == 0) {
      say("the backward of stage " + s + " for micro-batch " + m + " is missing: " + s + "B" + m +
          ", or " + s + "I" + m + " and " + s + "W" + m);
    } else if (b == 0 && i == 1 && w == 0) {
      say(s + "W" + m + " is missing");
    } else {
      say("the backward of stage " + s + " for micro-batch " + m +
          " is doubled or mixed: " + std::to_string(b) + " B, " + std::to_string(i) + " I, " +
          std::to_string(w) + " W; expected one B, or one I and one W");
    }
  }

  void judge_transfers() {
    // (is F, producing stage, micro-batch) -> number of sends and receives.
    std::map<std::array<int, 3>, std::array<int, 2>> ends;
    for (const auto& [rank, a] : transfers_) {
      const bool forward = a.kind == ActionKind::SendF || a.kind == ActionKind::RecvF;
      const int producer = is_send(a.kind) ? a.stage.value : peer_stage(a);
      ++ends[{forward, producer, a.micro_batch.value}][is_send(a.kind) ? 0 : 1];
      if (a.stage.value < order_.stages() && a.micro_batch.value < order_.micro_batches &&
          order_.placement.rank_of(a.stage, a.micro_batch) != rank) {
        say(to_string(a) + " stands on rank " + std::to_string(rank.value) + ", but stage " +
            std::to_string(a.stage.value) + " is on rank " +
            std::to_string(order_.placement.rank_of(a.stage, a.micro_batch).value));
      }
    }
    for (int s = 0; s < order_.stages() && !full(); ++s) {
      for (int m = 0; m < order_.micro_batches && !full(); ++m) {
        if (s + 1 < order_.stages()) judge_transfer(ends, true, s, s + 1, m);
        if (s > 0) judge_transfer(ends, false, s, s - 1, m);
      }
    }
  }

  void judge_transfer(std::map<std::array<int, 3>, std::array<int, 2>>& ends, bool forward,
                      int from, int to, int micro_batch) {
    const auto found = ends.find({forward, from, micro_batch});
    const auto [sends, receives] = found == ends.end() ? std::array<int, 2>{0, 0} : found->second;
    const MicroBatchId m(micro_batch);
    const bool same_rank =
        order_.placement.rank_of(StageId(from), m) == order_.placement.rank_of(StageId(to), m);
    if (same_rank && sends == receives) return;
    if (!same_rank && sends == 1 && receives == 1) return;
    const std::string send =
        to_string(Action{forward ? ActionKind::SendF : ActionKind::SendB, StageId(from), m});
    const std::string recv =
        to_string(Action{forward ? ActionKind::RecvF : ActionKind::RecvB, StageId(to), m});
    say("expected one " + send + " and one " + recv + ", found " + std::to_string(sends) + " and " +
        std::to_string(receives));
  }

  const Order& order_;
  std::vector<Counts> counts_;
  std::vector<std::pair<RankId, Action>> transfers_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> problems_of(const Order& order) { return OrderProblems(order).find(); }

}  // namespace pipewright
