#include "planner/synthesis/improve.hpp"

#include <algorithm>

namespace pipewright::planner::synthesis {
namespace {

/// Actions of one rank that follow each other without idle time on the critical path.
struct Block {
  int rank;
  std::size_t first, last;  // positions
};

class Climb {
 public:
  Climb(Search& search, std::mt19937_64& dice)
      : search_(search),
        problem_(search.problem),
        evaluator_(search.evaluator),
        dice_(dice),
        sequence_(search.best),
        producer_(2 * at(problem_.stages) * at(problem_.micro_batches)),
        number_(problem_.size()),
        count_(4 * at(problem_.stages)) {}

  void run(std::int64_t steps) {
    if (!evaluator_.run(sequence_)) return;
    value_ = evaluator_.value();
    trace();
    const std::int64_t stop = search_.steps + steps;
    while (search_.steps < stop && !search_.optimal()) {
      trial_ = sequence_;
      if (!change()) {
        search_.steps += 64;
        continue;
      }
      const std::int64_t value = search_.offer(trial_, "", "moves");
      if (value > value_) continue;
      value_ = value;
      std::swap(sequence_, trial_);
      trace();
    }
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(dice_() % n); }
  std::int64_t end(std::size_t position) const {
    return evaluator_.start_of(position) + evaluator_.time(sequence_[position], number_[position]);
  }

  /// The critical path of sequence_, which the evaluator has just timed, as blocks.
  void trace() {
    number();
    blocks_.clear();
    int rank = critical_rank();
    std::size_t position = problem_.first[at(rank) + 1] - 1;
    for (;;) {
      Block block{rank, position, position};
      while (block.first > problem_.first[at(rank)] &&
             end(block.first - 1) == evaluator_.start_of(block.first))
        --block.first;
      blocks_.push_back(block);
      const Token token = sequence_[block.first];
      if (kind_of(token) == Weight) break;
      const std::size_t from = producer_of(token, number_[block.first]);
      if (from == problem_.size()) break;
      position = from;
      rank = problem_.rank_of[at(stage_of(sequence_[from]))];
    }
  }

  int critical_rank() {
    // One of the ranks that give the value, at random, so that all are worked on.
    int found = 0, seen = 0;
    for (int r = 0; r < problem_.ranks; ++r) {
      if (problem_.first[at(r)] == problem_.first[at(r) + 1]) continue;
      const bool span = problem_.objective == Objective::Span;
      const std::int64_t before = span ? evaluator_.rank_start(r) : -evaluator_.update_of(r);
      if (evaluator_.rank_end(r) - before != value_) continue;
      if (below(at(++seen)) == 0) found = r;
    }
    return found;
  }

  /// number_: which of its kind each action is; producer_: where each F and I stands.
  void number() {
    std::fill(count_.begin(), count_.end(), 0);
    const std::size_t m = at(problem_.micro_batches), half = at(problem_.stages) * m;
    for (std::size_t i = 0; i < sequence_.size(); ++i) {
      const Token token = sequence_[i];
      number_[i] = count_[token]++;
      if (kind_of(token) == Weight) continue;
      producer_[(kind_of(token) == Input ? half : 0) + at(stage_of(token)) * m + at(number_[i])] =
          i;
    }
  }

  std::size_t producer_of(Token token, int k) const {
    const std::size_t m = at(problem_.micro_batches), half = at(problem_.stages) * m;
    const int stage = stage_of(token);
    if (kind_of(token) == Forward)
      return stage == 0 ? problem_.size() : producer_[at(stage - 1) * m + at(k)];
    if (stage + 1 == problem_.stages) return problem_.size();
    return producer_[half + at(stage + 1) * m + at(k)];
  }

  /// Changes trial_; false if the change is not allowed.
  bool change() {
    const Block& block = blocks_[below(blocks_.size())];
    const std::size_t length = block.last - block.first + 1;
    const std::size_t inside = block.first + below(length);
    switch (below(5)) {
      case 0:  // what the next rank waits for, earlier
        return move(block.rank, block.last,
                    block.last - std::min(block.last - block.first, 1 + below(6)));
      case 1:  // an action of the block, to its end
        return move(block.rank, inside, block.last);
      case 2: {  // something into the gap before the block
        const std::size_t stop = problem_.first[at(block.rank) + 1];
        const std::size_t from =
            std::min(block.first + 1 + below(3 * at(problem_.ranks)), stop - 1);
        return move(block.rank, from, block.first);
      }
      case 3: {  // anything by a few places
        const std::size_t first = problem_.first[at(block.rank)];
        const std::size_t stop = problem_.first[at(block.rank) + 1];
        const std::size_t to = first + below(stop - first);
        const std::size_t reach = 1 + below(8);
        return move(block.rank, inside,
                    std::clamp(to, inside - std::min(inside - first, reach),
                               std::min(inside + reach, stop - 1)));
      }
      default:
        return swap_all(block.rank, inside);
    }
  }

  bool move(int rank, std::size_t from, std::size_t to) {
    if (from == to) return false;
    const auto begin = trial_.begin();
    const auto place = [&](std::size_t p) { return begin + static_cast<std::ptrdiff_t>(p); };
    if (from < to) {
      std::rotate(place(from), place(from + 1), place(to + 1));
    } else {
      std::rotate(place(to), place(from), place(from + 1));
    }
    return allowed(rank, std::min(from, to), std::max(from, to));
  }

  /// Swaps two neighbours, and the same two wherever they follow each other later on.
  bool swap_all(int rank, std::size_t from) {
    const std::size_t stop = problem_.first[at(rank) + 1];
    if (from + 1 >= stop) return false;
    const Token a = trial_[from], b = trial_[from + 1];
    if (a == b) return false;
    std::size_t last = from + 1;
    for (std::size_t i = from; i + 1 < stop; ++i) {
      if (trial_[i] != a || trial_[i + 1] != b) continue;
      std::swap(trial_[i], trial_[i + 1]);
      last = ++i;
    }
    return allowed(rank, from, last);
  }

  /// Each I after its F, each W after its I, memory within the limit, from `first` to `last`.
  bool allowed(int rank, std::size_t first, std::size_t last) {
    const std::int64_t limit = problem_.limit[at(rank)];
    for (const int s : problem_.stages_of[at(rank)]) std::fill_n(count_.begin() + 4 * s, 3, 0);
    std::int64_t held = 0;
    for (std::size_t i = problem_.first[at(rank)]; i <= last; ++i) {
      const Token token = trial_[i];
      ++count_[token];
      held += problem_.memory[token];
      if (i < first) continue;
      if (kind_of(token) != Forward && count_[token] > count_[token - 1]) return false;
      if (held > limit) return false;
    }
    return true;
  }

  Search& search_;
  const Problem& problem_;
  Evaluator& evaluator_;
  std::mt19937_64& dice_;
  Sequence sequence_, trial_;
  std::int64_t value_ = kNever;
  std::vector<std::size_t> producer_;
  std::vector<int> number_, count_;
  std::vector<Block> blocks_;
};

}  // namespace

void improve(Search& search, std::mt19937_64& dice, std::int64_t steps) {
  if (search.best.empty() || search.problem.size() == 0) return;
  Climb(search, dice).run(steps);
}

}  // namespace pipewright::planner::synthesis
