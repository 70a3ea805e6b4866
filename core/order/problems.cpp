#include "core/order/problems.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/order/call_faults.hpp"
#include "core/order/forward_order.hpp"
#include "core/order/sharding_faults.hpp"
#include "core/order/transfers.hpp"
#include "core/order/versions.hpp"
#include "core/order/waits.hpp"

namespace pipewright {
namespace {

constexpr std::array<ActionKind, 4> kComputations = {ActionKind::F, ActionKind::I, ActionKind::W,
                                                     ActionKind::B};

/// Calls visit(rank, cell, action) for every action, in the order of the lists.
template <class Visit>
void for_each_place(const Order& order, Visit visit) {
  for (int r = 0; r < order.rank_count(); ++r) {
    const auto& row = order.ranks[static_cast<std::size_t>(r)];
    for (std::size_t k = 0; k < row.size(); ++k) {
      visit(RankId(r), k, row[k].action);
      if (row[k].partner) visit(RankId(r), k, *row[k].partner);
    }
  }
}

std::string stage_text(int stage) { return "stage " + std::to_string(stage); }

/// Counts of each computation, gathered once, then judged stage by stage.
class OrderProblems {
 public:
  explicit OrderProblems(const Order& order)
      : order_(order),
        forward_only_(is_forward_only(order)),
        counts_(static_cast<std::size_t>(order.stages()) *
                static_cast<std::size_t>(order.micro_batches)) {}

  std::vector<std::string> find() {
    take(lonely_group_problems(order_, kMostProblems));
    if (holds_calls_alone(order_)) return std::move(problems_);
    for_each_place(
        order_, [this](RankId rank, std::size_t cell, const Action& a) { count(rank, cell, a); });
    judge_ranks();
    for (int s = 0; s < order_.stages() && !full(); ++s) judge_stage(s);
    if (problems_.empty()) judge_sequence();
    take(transfer_problems(order_, kMostProblems));
    take(wait_problems(order_, kMostProblems));
    take(version_problems(order_));
    take(reduction_problems(order_));
    take(sharding_problems(order_));
    take(format_problems(order_));
    return std::move(problems_);
  }

 private:
  using Counts = std::array<std::uint8_t, 4>;  // F I W B

  bool full() const { return problems_.size() >= kMostProblems; }
  void say(std::string problem) {
    if (!full()) problems_.push_back(std::move(problem));
  }
  void take(std::vector<std::string> problems) {
    for (std::string& problem : problems) say(std::move(problem));
  }
  std::size_t tensor(const Action& a) const {
    return static_cast<std::size_t>(a.stage.value) *
               static_cast<std::size_t>(order_.micro_batches) +
           static_cast<std::size_t>(a.micro_batch.value);
  }

  void count(RankId rank, std::size_t cell, const Action& a) {
    if (a.kind == ActionKind::Unshard || a.kind == ActionKind::Reshard ||
        a.kind == ActionKind::ReduceGrad)
      return judge_state(rank, cell, a);
    if (!is_compute(a.kind)) return;
    if (a.stage.value >= order_.stages() || a.micro_batch.value >= order_.micro_batches) {
      return say(place_text(rank, cell) + ": " + to_string(a) +
                 " names a stage or micro-batch that does not exist");
    }
    auto& seen = counts_[tensor(a)][static_cast<std::size_t>(a.kind)];
    if (seen < 255) ++seen;
    const RankId home = order_.placement.rank_of(a.stage, a.micro_batch);
    if (home == rank || full()) return;
    const std::string other = first_of_stage(home, a.stage);
    say(place_text(rank, cell) + ": " + to_string(a) + " stands on rank " +
        std::to_string(rank.value) + ", but " + stage_text(a.stage.value) + " is on rank " +
        std::to_string(home.value) + (other.empty() ? "" : " (" + other + ")"));
  }

  /// The first computation of the stage in the rank's list, "rank 0, action 1"; "" if none.
  std::string first_of_stage(RankId rank, StageId stage) const {
    if (rank.value < 0 || rank.value >= order_.rank_count()) return "";
    const auto& row = order_.ranks[static_cast<std::size_t>(rank.value)];
    for (std::size_t k = 0; k < row.size(); ++k) {
      const auto is_it = [&](const Action& a) { return is_compute(a.kind) && a.stage == stage; };
      if (is_it(row[k].action) || (row[k].partner && is_it(*row[k].partner))) {
        return place_text(rank, k);
      }
    }
    return "";
  }

  /// UNSHARD, RESHARD and REDUCE_GRAD belong on a rank that holds the stage.
  void judge_state(RankId rank, std::size_t cell, const Action& a) {
    for (int m = 0; m < order_.micro_batches; ++m) {
      if (a.stage.value < order_.stages() &&
          order_.placement.rank_of(a.stage, MicroBatchId(m)) == rank)
        return;
    }
    say(place_text(rank, cell) + ": " + to_string(a) + " stands on rank " +
        std::to_string(rank.value) + ", which does not hold " + stage_text(a.stage.value));
  }

  void judge_ranks() {
    for (int r = 0; r < order_.rank_count() && !full(); ++r) {
      bool computes = false;
      const auto& row = order_.ranks[static_cast<std::size_t>(r)];
      for (const Cell& cell : row) computes |= is_compute(cell.action.kind);
      if (computes) continue;
      say("rank " + std::to_string(r) + " computes nothing: its list has " +
          std::to_string(row.size()) +
          " actions, and no F, I, W or B; use fewer ranks, or give "
          "it a stage");
    }
  }

  void judge_stage(int stage) {
    bool computed = false;
    for (int m = 0; m < order_.micro_batches && !computed; ++m) {
      const auto [f, i, w, b] = counts_[tensor({ActionKind::F, StageId(stage), MicroBatchId(m)})];
      computed = f + i + w + b > 0;
    }
    if (!computed) return say(empty_stage_text(stage));
    for (int m = 0; m < order_.micro_batches && !full(); ++m) judge(stage, m);
  }

  std::string empty_stage_text(int stage) const {
    std::string where;
    for_each_place(order_, [&](RankId rank, std::size_t cell, const Action& a) {
      const bool named = has_stage(a.kind);
      if (where.empty() && named && std::abs(a.stage.value - stage) <= 1) {
        where = place_text(rank, cell) + " (" + to_string(a) + ")";
      }
    });
    if (where.empty()) where = place_text(RankId(0), 0);
    return where + ": " + stage_text(stage) +
           " is empty: no rank computes it; number the stages "
           "without a gap, or give it its F and B";
  }

  void judge(int stage, int micro_batch) {
    const Action forward{ActionKind::F, StageId(stage), MicroBatchId(micro_batch)};
    const auto [f, i, w, b] = counts_[tensor(forward)];
    // Places are looked for only where something is wrong: that takes a walk through the order.
    if (f == 1 && (forward_only_ || (b == 1 && i + w == 0) || (b == 0 && i == 1 && w == 1))) return;
    const std::string s = std::to_string(stage), m = std::to_string(micro_batch);
    const std::string at = place_of_tensor(forward) + ": ";
    if (f == 0) say(at + s + "F" + m + " is missing");
    for (const ActionKind kind : kComputations) {
      const int times = counts_[tensor(forward)][static_cast<std::size_t>(kind)];
      if (times > 1) say_doubled({kind, forward.stage, forward.micro_batch}, times);
    }
    if (forward_only_) return;
    if (b <= 1 && i <= 1 && w <= 1 && b + i > 1) {
      say(at + "the backward of stage " + s + " for micro-batch " + m + " is doubled or mixed: " +
          backward_places(forward) + "; expected one B, or one I and one W");
    } else if (b + i == 0) {
      say(at + "the backward of stage " + s + " for micro-batch " + m + " is missing: " + s + "B" +
          m + ", or " + s + "I" + m + " and " + s + "W" + m);
    } else if (b == 0 && w == 0) {
      say(place_text(order_, {ActionKind::I, forward.stage, forward.micro_batch}) + ": " + s + "W" +
          m + " is missing");
    } else if (b == 1 && w > 0) {
      say(place_text(order_, {ActionKind::W, forward.stage, forward.micro_batch}) + ": " + s + "W" +
          m + " is doubled or mixed: " + s + "B" + m + " (" +
          place_text(order_, {ActionKind::B, forward.stage, forward.micro_batch}) +
          ") does its work already");
    }
  }

  /// Where any of the computations of a stage and micro-batch stands; else the first of the stage.
  std::string place_of_tensor(const Action& forward) const {
    for (const ActionKind kind : kComputations) {
      std::string found = place_text(order_, {kind, forward.stage, forward.micro_batch});
      if (!found.empty()) return found;
    }
    const RankId home = order_.placement.rank_of(forward.stage, forward.micro_batch);
    std::string found = first_of_stage(home, forward.stage);
    return found.empty() ? "rank " + std::to_string(home.value) : found;
  }

  std::string backward_places(const Action& forward) const {
    std::string text;
    for (const ActionKind kind : {ActionKind::B, ActionKind::I, ActionKind::W}) {
      const Action a{kind, forward.stage, forward.micro_batch};
      const std::string found = place_text(order_, a);
      if (!found.empty()) {
        text += (text.empty() ? "" : ", ") + to_string(a) + " (" + found + ")";
      }
    }
    return text;
  }

  void say_doubled(const Action& a, int times) {
    say(place_text(order_, a, 2) + ": " + to_string(a) + " is there " + std::to_string(times) +
        " times, first at " + place_text(order_, a));
  }

  /// Of an order with one of each on its rank: a backward before its forward, or W before its I, is
  /// a wait that no policy and no time can end. The two actions of a pair are under way together.
  void judge_sequence() {
    std::vector<std::uint8_t> seen(counts_.size());  // bit F, bit I
    const auto bit = [](ActionKind kind) {
      return static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind));
    };
    for (int r = 0; r < order_.rank_count() && !full(); ++r) {
      const auto& row = order_.ranks[static_cast<std::size_t>(r)];
      for (std::size_t k = 0; k < row.size(); ++k) {
        for (const Action* a : {&row[k].action, row[k].partner ? &*row[k].partner : nullptr}) {
          if (a != nullptr && is_compute(a->kind)) seen[tensor(*a)] |= bit(a->kind);
        }
        for (const Action* a : {&row[k].action, row[k].partner ? &*row[k].partner : nullptr}) {
          if (a == nullptr || !is_compute(a->kind) || a->kind == ActionKind::F) continue;
          const ActionKind before = a->kind == ActionKind::W ? ActionKind::I : ActionKind::F;
          if ((seen[tensor(*a)] & bit(before)) == 0) say_too_early(RankId(r), k, *a, before);
        }
      }
    }
  }

  void say_too_early(RankId rank, std::size_t cell, const Action& a, ActionKind before) {
    const Action needed{before, a.stage, a.micro_batch};
    say(place_text(rank, cell) + ": " + to_string(a) + " stands before the " + to_string(needed) +
        " that it needs (" + place_text(order_, needed) + "): the rank can never go on");
  }

  const Order& order_;
  const bool forward_only_;
  std::vector<Counts> counts_;
  std::vector<std::string> problems_;
};

}  // namespace

std::string place_text(RankId rank, std::size_t cell) {
  return "rank " + std::to_string(rank.value) + ", action " + std::to_string(cell + 1);
}

std::string place_text(const Order& order, const Action& action, int number) {
  std::string found;
  for_each_place(order, [&](RankId rank, std::size_t cell, const Action& a) {
    if (same_action(a, action) && --number == 0) found = place_text(rank, cell);
  });
  return found;
}

std::vector<std::string> problems_of(const Order& order) { return OrderProblems(order).find(); }

bool is_incomplete(const Order& order) {
  if (holds_calls_alone(order)) return false;
  const bool forward_only = is_forward_only(order);
  std::vector<std::uint8_t> forward(static_cast<std::size_t>(order.stages()) *
                                    static_cast<std::size_t>(order.micro_batches)),
      backward = forward;
  for (const auto& row : order.ranks) {
    if (std::ranges::none_of(row, [](const Cell& c) { return is_compute(c.action.kind); }))
      return true;
  }
  for_each_place(order, [&](RankId, std::size_t, const Action& a) {
    const auto tensor =
        static_cast<std::size_t>(a.stage.value) * static_cast<std::size_t>(order.micro_batches) +
        static_cast<std::size_t>(a.micro_batch.value);
    if (!is_compute(a.kind) || tensor >= forward.size()) return;
    if (a.kind == ActionKind::F) forward[tensor] = 1;
    if (a.kind == ActionKind::I || a.kind == ActionKind::B) backward[tensor] = 1;
  });
  const auto columns = static_cast<std::ptrdiff_t>(order.micro_batches);
  const auto is_there = [](std::uint8_t one) { return one != 0; };
  for (auto f = forward.begin(), b = backward.begin(); f != forward.end();
       f += columns, b += columns) {
    if (std::none_of(f, f + columns, is_there) && std::none_of(b, b + columns, is_there)) continue;
    if (!std::all_of(f, f + columns, is_there)) return true;
    if (!forward_only && !std::all_of(b, b + columns, is_there)) return true;
  }
  return order.has_transfers() && !transfer_problems(order, 1).empty();
}

std::vector<std::string> format_problems(const Order& order) {
  std::vector<std::string> problems;
  for (const FormatFault& fault : format_faults(order.messages)) {
    if (problems.size() == kMostProblems) break;
    const std::string place = place_text(order, fault.send);
    problems.push_back((place.empty() ? "" : place + ": ") + fault.sentence);
  }
  return problems;
}

std::vector<std::string> problems_of(const Order& order, bool fragment) {
  return fragment ? format_problems(order) : problems_of(order);
}

std::vector<std::string> notes_of(const Order& order) {
  std::vector<std::string> notes;
  if (holds_calls_alone(order)) return notes;
  if (order.micro_batches < order.rank_count()) {
    notes.push_back(std::to_string(order.micro_batches) +
                    (order.micro_batches == 1 ? " micro-batch" : " micro-batches") + " on " +
                    std::to_string(order.rank_count()) +
                    " ranks: some rank is idle at every moment, and some runtimes hang with so few "
                    "(torchtitan issue 775)");
  }
  // One stage a rank, and not in order: the lists may have been mixed up.
  if (order.stages() != order.rank_count() || order.placement.looks_at_micro_batch()) return notes;
  for (int s = 0; s < order.stages(); ++s) {
    const RankId home = order.placement.rank_of(StageId(s), MicroBatchId(0));
    if (home.value == s || home.value < 0) continue;
    notes.push_back("the list of rank " + std::to_string(home.value) + " computes stage " +
                    std::to_string(s) +
                    ": lists stand in the order of the ranks, and frameworks put stage r on rank "
                    "r; sort them if this is not meant");
    break;
  }
  return notes;
}

}  // namespace pipewright
