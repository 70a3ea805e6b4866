// The synthesis problem in the form that the search works on: flat arrays by token. Times in ns,
// memory in bytes (or activations where there is no memory table). Plain data.
//
// An order is a sequence of tokens, one a computation: stage and kind, no micro-batch. The k-th F
// of a stage is the F of micro-batch k, and so for I and W. Nothing is lost by that: micro-batches
// cost the same, so in any timetable the k-th F of stage s (by time) comes after the k-th arrival
// from stage s-1, the k-th I after the k-th F of its stage and the k-th arrival from stage s+1, the
// k-th W after the k-th I. Giving the numbers 0, 1, … by time therefore leaves a timetable that
// keeps all dependencies, with the same actions at the same times on the same ranks and the same
// memory.
//
// Where single actions have times of their own (core/costs/action_times.hpp) the numbers matter.
// Then the k-th of every token is micro-batch turn[k]: all stages take micro-batches in the same
// turns. The search chooses the turns (planner/synthesis/turns.hpp); orders in which stages differ
// in them are left out, but no bound is above them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/order/order.hpp"
#include "planner/base/index.hpp"
#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner::synthesis {

/// stage * 4 + kind.
using Token = std::uint32_t;
enum Kind : std::uint32_t { Forward = 0, Input = 1, Weight = 2 };  // Input is B where fused
constexpr Token token_of(int stage, Kind kind) { return static_cast<Token>(stage) * 4 + kind; }
constexpr int stage_of(Token token) { return static_cast<int>(token >> 2); }
constexpr Kind kind_of(Token token) { return static_cast<Kind>(token & 3); }

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

/// What the actions of a replica take, and its updates.
struct OwnTimes {
  std::vector<std::int64_t> time;    // by token * micro_batches + micro-batch
  std::vector<std::int64_t> update;  // by rank; 0 for the span
};

struct Problem {
  int ranks = 0, stages = 0, micro_batches = 0;
  int kinds = 3;  // 2 where I and W are fused
  Objective objective = Objective::Makespan;
  Placement placement;
  std::vector<int> rank_of;                    // by stage
  std::vector<std::vector<int>> stages_of;     // by rank, ascending
  std::vector<std::int64_t> duration, memory;  // by token; memory: change at F's start, else end
  std::vector<std::int64_t> forward_latency;   // by stage: to the next one; 0 on the same rank
  std::vector<std::int64_t> backward_latency;  // by stage: to the one before
  std::vector<std::int64_t> limit;             // by rank, constant part taken off; kNever: none
  std::vector<std::int64_t> constant;          // by rank
  std::vector<std::size_t> first;              // by rank, ranks + 1: where its tokens begin
  std::vector<std::int64_t> work;              // by rank: all its durations
  std::vector<std::int64_t> update;            // by rank: after all of it; 0 for the span
  /// Where single actions have times of their own; else both are empty. `duration` then has the
  /// means, `work` and `update` the most of any replica.
  OwnTimes own;                    // the longest of all replicas
  std::vector<OwnTimes> replicas;  // of each, where there are several
  std::vector<int> turn;           // the micro-batch that comes k-th

  std::size_t size() const { return first.back(); }
  /// Actions that are timed where a sequence is: those of every replica with times of its own.
  std::int64_t timed() const {
    return static_cast<std::int64_t>(size() * (replicas.empty() ? 1 : replicas.size()));
  }
  /// Of the k-th of the token; of several replicas that of the one where it is longest.
  std::int64_t time(Token token, int k) const {
    if (own.time.empty()) return duration[token];
    const auto m = static_cast<std::size_t>(micro_batches);
    return own.time[token * m + static_cast<std::size_t>(turn[static_cast<std::size_t>(k)])];
  }
  bool limited(int rank) const { return limit[static_cast<std::size_t>(rank)] != kNever; }
};

/// All ranks' tokens, rank r's from problem.first[r] to problem.first[r + 1].
using Sequence = std::vector<Token>;

/// Throws InputError where the request has no meaning.
Problem problem_of(const SynthesisRequest& request);

Order order_of(const Problem& problem, const Sequence& sequence);
/// By the numbers of micro-batches: in which turns the order's first stage takes them.
std::vector<int> turn_of(const Order& order);
/// Whether every stage takes micro-batches in these turns, forwards and backwards.
bool keeps_turns(const Order& order, const std::vector<int>& turn);
/// nullopt where the order is for another placement or holds what a sequence cannot (pairs,
/// versions). Numbers of micro-batches are not looked at. As the problem needs it, B is taken
/// apart, or I and W are put together at W's place; the latter may make an order that never ends.
std::optional<Sequence> sequence_of(const Problem& problem, const Order& order);

/// True if each rank's memory stays within its limit after every action.
bool keeps_limits(const Problem& problem, const Sequence& sequence);

/// What a rank holds at most, without its constant part, if it does one micro-batch alone: F's,
/// then each I with its W right after it, or at the end where W takes memory.
std::int64_t peak_of_one(const Problem& problem, int rank);
/// The order that does one micro-batch after the other, which always ends and holds least.
Sequence one_by_one(const Problem& problem);
/// What the rank holds at most in the sequence, without its constant part.
std::int64_t peak_of(const Problem& problem, const Sequence& sequence, int rank);

}  // namespace pipewright::planner::synthesis
