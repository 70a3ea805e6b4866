// What the phases of a synthesis share: the best order so far, and how much may still be tried.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/synthesis/evaluate.hpp"
#include "planner/synthesis/problem.hpp"

namespace pipewright::planner::synthesis {

struct Search {
  using Clock = std::chrono::steady_clock;

  Search(const Problem& p, std::int64_t lower) : problem(p), evaluator(p), bound(lower) {}

  const Problem& problem;
  Evaluator evaluator;
  std::int64_t bound;  // nothing is below
  Sequence best;       // empty: none yet
  std::int64_t best_value = kNever;
  std::int64_t wanted_below = kNever;  // what is not below is of no use
  std::size_t keep_beaten = 0;         // how many of these are kept:
  std::deque<Sequence> beaten;         // were the best, the last first
  std::string found_by;                // what gave the order that best was made from
  /// Sequences that were offered under a name, where they are wanted.
  std::vector<std::pair<std::string, Sequence>>* offered = nullptr;
  std::int64_t steps = 0;  // actions placed or timed so far
  std::int64_t evaluated = 0;
  Clock::time_point begin = Clock::now();
  std::function<void(std::string_view phase)> on_improvement;

  std::int64_t to_beat() const { return std::min(best_value, wanted_below); }
  /// Nothing better is possible.
  bool optimal() const { return to_beat() <= bound; }
  /// Takes the sequence if it is better than the best; its value, or kNever if it never ends.
  std::int64_t offer(const Sequence& sequence, std::string_view source, std::string_view phase) {
    ++evaluated;
    steps += problem.timed();
    if (!evaluator.run(sequence)) return kNever;
    if (offered != nullptr && !source.empty()) offered->emplace_back(source, sequence);
    const std::int64_t value = evaluator.value();
    if (value < best_value) {
      if (keep_beaten > 0 && !best.empty()) {
        beaten.push_front(std::move(best));
        if (beaten.size() > keep_beaten) beaten.pop_back();
      }
      best = sequence;
      best_value = value;
      if (!source.empty()) found_by = source;
      if (on_improvement) on_improvement(phase);
    }
    return value;
  }
};

}  // namespace pipewright::planner::synthesis
