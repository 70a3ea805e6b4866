// List scheduling: walks through time, and whenever a rank is free lets it take one of the actions
// whose inputs are there, by rules that can be tuned. The zero-bubble heuristics are points in the
// space of these rules (arXiv:2401.10241, section 3.1): as many forwards as memory allows before
// the first gradient, then I before F before W, W where a gap is long enough or memory is needed.
//
// Memory never ends in a dead end: an F is taken only if afterwards the micro-batches that the
// rank has begun can still be finished one by one, oldest first (the banker's rule; the same order
// on every rank, so what is safe on each rank is safe on all together).
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "planner/synthesis/problem.hpp"

namespace pipewright::planner::synthesis {

/// By token, except where said. Of the actions that could start, the one with the largest key goes
/// first, but it waits for an arrival of a larger key that is due within its patience.
///
/// There are two kinds of rules. With period 0, keys are fixed ranks of the actions. Else they come
/// from a timetable of one micro-batch that is repeated every `period`, as in modulo scheduling of
/// loops: what is due first goes first. The timetable is the micro-batch's way through all stages,
/// with `slack` before each action; W has none and fills gaps.
/// With `due` each action has its own time; what is due first goes first.
struct Rules {
  std::vector<std::int64_t> key;    // for micro-batch 0
  std::vector<std::int64_t> slack;  // ns; empty where period is 0
  std::int64_t period = 0;          // ns
  std::vector<std::int64_t> due;    // ns, by token * micro_batches + k; empty: keys decide
  std::int64_t pace = 0;            // ns: F k of stage 0 does not start before k * pace
  std::vector<int> patience;        // in 1/256 of the action's duration
  std::vector<int> backlog;         // by stage: W's beyond this go before F (period 0), before all
  std::vector<int> depth;           // by rank: micro-batches between first F and last I, at most
};

/// Sets the keys of a timetable from its slack.
void set_timetable(const Problem& problem, Rules& rules);

/// The usual ways to order, from which tuning begins.
std::vector<Rules> usual_rules(const Problem& problem);

class ListScheduler {
 public:
  explicit ListScheduler(const Problem& problem);

  /// The order that the rules give, in `sequence`. False where it is given up because its value
  /// would be above `most`, or where the rules lead into a dead end, which can happen where F gives
  /// memory back, or I or W takes some. O(actions * ranks).
  bool run(const Rules& rules, Sequence& sequence, std::int64_t most = kNever);
  /// After a run that returned true: the order's value is at most this. It can be less, because
  /// rules that wait do not always use what they waited for.
  std::int64_t value() const { return value_; }
  /// Actions placed by all runs.
  std::int64_t steps() const { return steps_; }

 private:
  struct Choice {
    Token token = 0;
    std::int64_t start = kNever;  // kNever: nothing is known to arrive
    bool taken = false;           // false: look again at `start`
  };

  void reset(const Rules& rules);
  Choice choose(int rank, const Rules& rules, std::int64_t now) const;
  std::int64_t key_of(const Rules& rules, Token token) const;
  bool fits(int rank, Token token) const;
  bool can_finish(int rank, std::int64_t held, Token next) const;
  /// Returns the least value that the order can still have.
  std::int64_t take(int rank, Token token, std::int64_t now, Sequence& sequence);
  void arrive(std::size_t arrival, int rank, std::int64_t time);
  void set_wake(int rank, std::int64_t time);

  const Problem& problem_;
  std::vector<std::int64_t> alone_;    // by rank: peak_of_one()
  std::vector<std::int64_t> arrival_;  // F of (stage, k), then I
  std::vector<std::int64_t> clock_, held_,
      least_;  // by rank; least_: idle time + all work, and the update
  // When each rank looks for an action next, as a tree of winners: wake_[leaves_ + r] is rank r's,
  // winner_[n] the rank with the earliest below node n.
  std::vector<std::int64_t> wake_;
  std::vector<int> winner_;
  std::size_t leaves_ = 1;
  std::vector<std::size_t> cursor_;
  std::vector<int> done_;
  std::int64_t value_ = 0, steps_ = 0;
};

}  // namespace pipewright::planner::synthesis
