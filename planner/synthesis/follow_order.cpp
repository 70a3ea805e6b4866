#include "planner/synthesis/follow_order.hpp"

#include <algorithm>

#include "planner/synthesis/construct.hpp"

namespace pipewright::planner::synthesis {
namespace {

constexpr std::string_view kPhase = "list scheduling";

class Follower {
 public:
  Follower(Search& search, std::mt19937_64& dice)
      : search_(search), problem_(search.problem), dice_(dice), scheduler_(search.problem) {
    const std::size_t tokens = 4 * at(problem_.stages);
    rules_.due.assign(tokens * at(problem_.micro_batches), 0);
    rules_.patience.assign(tokens, 256);
    rules_.depth.assign(at(problem_.ranks), problem_.micro_batches);
    longest_ =
        *std::max_element(problem_.work.begin(), problem_.work.end()) / problem_.micro_batches;
  }

  void run(std::int64_t steps) {
    take_times();
    // The order that its own times give may be a little worse; how much is made up for first.
    value_ = attempt(rules_, search_.best_value + search_.best_value / 20);
    if (value_ == kNever) return;
    const std::int64_t stop = scheduler_.steps() + steps;
    while (scheduler_.steps() < stop && !search_.optimal()) {
      trial_ = rules_;
      for (int changes = 1 + below(3); changes > 0; --changes) change(trial_);
      const std::int64_t best = search_.best_value;
      const std::int64_t value = attempt(trial_, value_);
      if (value == kNever) continue;
      value_ = value;
      std::swap(rules_, trial_);
      if (search_.best_value < best && below(2) == 0) take_times();
    }
  }

 private:
  int below(int n) { return static_cast<int>(dice_() % static_cast<std::uint64_t>(n)); }

  std::int64_t attempt(const Rules& rules, std::int64_t most) {
    const std::int64_t before = scheduler_.steps();
    const bool done = scheduler_.run(rules, sequence_, most);
    search_.steps += scheduler_.steps() - before;
    ++search_.evaluated;
    if (!done) return kNever;
    if (scheduler_.value() < search_.best_value) search_.offer(sequence_, "", kPhase);
    return scheduler_.value();
  }

  void take_times() {
    if (!search_.evaluator.run(search_.best)) return;
    std::vector<int> count(4 * at(problem_.stages), 0);
    for (std::size_t i = 0; i < search_.best.size(); ++i) {
      const Token token = search_.best[i];
      rules_.due[token * at(problem_.micro_batches) + at(count[token]++)] =
          search_.evaluator.start_of(i);
    }
  }

  void change(Rules& rules) {
    const int m = problem_.micro_batches;
    int from = below(problem_.stages), to = from;
    if (below(3) == 0) to += below(problem_.stages - from);
    const Kind kind = static_cast<Kind>(below(problem_.kinds));
    if (below(8) == 0) {
      const int patience = below(400);
      for (int s = from; s <= to; ++s) rules.patience[token_of(s, kind)] = patience;
      return;
    }
    int first = 0, last = m;
    if (below(3) != 0) {
      first = below(m);
      last = first + 1 + below(m - first);
      if (below(2) == 0) last = std::min(last, first + 3);
    }
    const std::int64_t reach = std::max<std::int64_t>(2, longest_ >> below(4));
    const auto shift =
        static_cast<std::int64_t>(dice_() % static_cast<std::uint64_t>(2 * reach)) - reach;
    for (int s = from; s <= to; ++s) {
      const std::size_t row = token_of(s, kind) * at(m);
      for (int k = first; k < last; ++k) rules.due[row + at(k)] += shift;
    }
  }

  Search& search_;
  const Problem& problem_;
  std::mt19937_64& dice_;
  ListScheduler scheduler_;
  Sequence sequence_;
  Rules rules_, trial_;
  std::int64_t value_ = kNever, longest_ = 1;
};

}  // namespace

void follow_order(Search& search, std::mt19937_64& dice, std::int64_t steps) {
  if (search.best.empty() || search.optimal()) return;
  Follower(search, dice).run(steps);
}

}  // namespace pipewright::planner::synthesis
