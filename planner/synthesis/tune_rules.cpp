#include "planner/synthesis/tune_rules.hpp"

#include <algorithm>

namespace pipewright::planner::synthesis {
namespace {

constexpr std::string_view kTunePhase = "list scheduling";

class Tuner {
 public:
  Tuner(Search& search, std::mt19937_64& dice)
      : search_(search), problem_(search.problem), dice_(dice), scheduler_(search.problem) {}

  /// The usual rules, as many as `steps` allow; those that came near the best are where tuning
  /// starts.
  void try_usual(std::int64_t steps) {
    std::vector<Rules> all = usual_rules(problem_);
    for (std::size_t n = 0; n < all.size(); ++n) {
      const bool enough = scheduler_.steps() > steps;
      if (search_.optimal() || (!starts_.empty() && enough)) break;
      // Rules that differ in all first: 89 is a prime and no divisor of their number.
      Rules& rules = all[n * 89 % all.size()];
      const std::int64_t value = attempt(rules, most_for_start());
      if (value != kNever) starts_.push_back({value, std::move(rules)});
    }
    std::stable_sort(starts_.begin(), starts_.end(),
                     [](const Start& a, const Start& b) { return a.value < b.value; });
    const auto same = [](const Start& a, const Start& b) {
      return a.value == b.value && (a.rules.period > 0) == (b.rules.period > 0);
    };
    starts_.erase(std::unique(starts_.begin(), starts_.end(), same), starts_.end());
    if (starts_.size() > kStarts) starts_.resize(kStarts);
  }

  /// Half of the steps for all starts alike, the rest for the best of them.
  void tune(std::int64_t steps) {
    if (starts_.empty()) return;
    const auto share = steps / 2 / static_cast<std::int64_t>(starts_.size());
    for (Start& start : starts_) climb(start, share);
    const auto best =
        std::min_element(starts_.begin(), starts_.end(),
                         [](const Start& a, const Start& b) { return a.value < b.value; });
    climb(*best, steps / 2);
  }

 private:
  static constexpr std::size_t kStarts = 6;
  struct Start {
    std::int64_t value;
    Rules rules;
  };

  std::int64_t most_for_start() const {
    return search_.best_value == kNever ? kNever : search_.best_value + search_.best_value / 4;
  }

  void climb(Start& start, std::int64_t steps) {
    const std::int64_t stop = scheduler_.steps() + steps;
    while (scheduler_.steps() < stop && !search_.optimal()) {
      trial_ = start.rules;
      for (int changes = 1 + below(3); changes > 0; --changes) {
        if (trial_.period > 0 && below(2) == 0) {
          change_timetable(trial_);
        } else {
          change(trial_);
        }
      }
      const std::int64_t value = attempt(trial_, start.value);
      if (value == kNever) continue;
      start.value = value;
      std::swap(start.rules, trial_);
    }
  }

  int below(int n) { return static_cast<int>(dice_() % static_cast<std::uint64_t>(n)); }

  /// The value of the rules' order, kNever where it is above `most`.
  std::int64_t attempt(const Rules& rules, std::int64_t most) {
    const std::int64_t before = scheduler_.steps();
    const bool done = scheduler_.run(rules, sequence_, most);
    search_.steps += scheduler_.steps() - before;
    ++search_.evaluated;
    if (!done) return kNever;
    if (scheduler_.value() < search_.best_value) search_.offer(sequence_, kTunePhase, kTunePhase);
    return scheduler_.value();
  }

  /// Changes slack, period or pace.
  void change_timetable(Rules& rules) {
    int from = below(problem_.stages), to = from;
    if (below(2) == 0) to += below(problem_.stages - from);
    const Kind kind = below(2) == 0 ? Forward : Input;
    const std::int64_t level = below(9);
    switch (below(8)) {
      case 0:
        rules.period = std::max<std::int64_t>(1, rules.period * (92 + below(17)) / 100);
        break;
      case 1:
        rules.pace = below(2) == 0 ? 0 : rules.period * below(11) / 10;
        break;
      default:
        for (int s = from; s <= to; ++s)
          rules.slack[token_of(s, kind)] = problem_.duration[token_of(s, Forward)] * level / 4;
    }
    set_timetable(problem_, rules);
  }

  /// Changes one kind of rule on one rank, a range of ranks, or all.
  void change(Rules& rules) {
    int from = below(problem_.ranks), to = from;
    if (below(3) == 0) to += below(problem_.ranks - from);
    if (below(6) == 0) from = 0, to = problem_.ranks - 1;
    const int what = rules.period > 0 ? 3 + below(5) : below(7), level = below(3000),
              share = below(300), small = below(6);
    const int chunk = below(64), depth = 1 + below(2 * problem_.stages);
    const bool large = below(2) == 0;
    for (int r = from; r <= to; ++r) {
      const auto& stages = problem_.stages_of[at(r)];
      if (stages.empty()) continue;
      const int s = stages[at(chunk) % stages.size()];
      const Token f = token_of(s, Forward), i = token_of(s, Input), w = token_of(s, Weight);
      int& room = rules.depth[at(r)];
      switch (what) {
        case 0:
          rules.key[f] = level;
          break;
        case 1:
          rules.key[i] = level + (large ? 1000 : 0);
          break;
        case 2:
          rules.key[w] = level / 3;
          break;
        case 3:
          rules.patience[f] = share;
          break;
        case 4:
          rules.patience[w] = share;
          break;
        case 5:
          rules.backlog[at(s)] = small;
          break;
        case 7:
          rules.patience[i] = share;
          break;
        default:
          room = std::clamp(large ? depth : room + small % 4 - 2, 1, problem_.micro_batches);
      }
    }
  }

  Search& search_;
  const Problem& problem_;
  std::mt19937_64& dice_;
  ListScheduler scheduler_;
  Sequence sequence_;
  std::vector<Start> starts_;
  Rules trial_;
};

}  // namespace

void tune_rules(Search& search, std::mt19937_64& dice, std::int64_t steps) {
  Tuner tuner(search, dice);
  tuner.try_usual(steps / 4);
  tuner.tune(steps - steps / 4);
}

}  // namespace pipewright::planner::synthesis
