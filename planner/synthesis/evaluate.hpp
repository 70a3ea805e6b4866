// Times of a sequence under preset `ideal`: every action as early as its rank's order and its
// inputs allow. Integer ns. Holds its arrays between calls, so that a call allocates nothing; one
// object a thread.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/synthesis/problem.hpp"

namespace pipewright::planner::synthesis {

class Evaluator {
 public:
  explicit Evaluator(const Problem& problem);

  /// False: the order never ends (or an action stands before its own F or I). O(actions), for each
  /// replica that has times of its own: then the values are those of the slowest, by the objective,
  /// and starts and ends are its.
  bool run(const Sequence& sequence);

  /// Of the last run that returned true.
  std::int64_t makespan() const { return makespan_; }
  std::int64_t span() const { return span_; }
  std::int64_t value() const {
    return problem_.objective == Objective::Makespan ? makespan_ : span_;
  }
  /// The rank that gives the value, lowest first.
  int critical_rank() const;
  std::int64_t start_of(std::size_t position) const { return start_[position]; }
  std::int64_t rank_end(int rank) const { return clock_[static_cast<std::size_t>(rank)]; }
  std::int64_t rank_start(int rank) const;
  /// Between the rank's last computation and the step's end at least.
  std::int64_t update_of(int rank) const { return (*update_)[static_cast<std::size_t>(rank)]; }
  /// What the k-th of a token takes.
  std::int64_t time(Token token, int k) const {
    if (own_ == nullptr) return problem_.duration[token];
    const auto m = static_cast<std::size_t>(problem_.micro_batches);
    return own_[token * m + static_cast<std::size_t>(problem_.turn[static_cast<std::size_t>(k)])];
  }
  std::int64_t runs() const { return runs_; }

 private:
  bool run_replica(const Sequence& sequence);
  void use(const OwnTimes& times) {
    own_ = times.time.data();
    update_ = &times.update;
  }
  void advance(int rank, const Token* tokens);
  void deliver(std::size_t arrival, int rank, std::int64_t time);

  const Problem& problem_;
  const std::int64_t* own_ = nullptr;  // of the replica that is timed; nullptr: by token alone
  const std::vector<std::int64_t>* update_;
  std::vector<std::int64_t> arrival_;  // F of (stage, k), then I of (stage, k); kNever: not yet
  std::vector<std::int64_t> start_;    // by position
  std::vector<std::int64_t> clock_;    // by rank
  std::vector<std::size_t> cursor_;    // by rank: the next position
  std::vector<std::size_t> awaited_;   // by rank: the arrival that it waits for
  std::vector<int> done_;              // by token
  std::vector<int> awake_;             // stack of ranks that can go on
  std::int64_t makespan_ = 0, span_ = 0, runs_ = 0;
};

}  // namespace pipewright::planner::synthesis
