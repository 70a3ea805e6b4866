#include "planner/synthesis/prove_bound.hpp"

#include <algorithm>
#include <array>

namespace pipewright::planner::synthesis {
NodeBound::NodeBound(const Problem& problem)
    : problem_(problem),
      before_(memory_precedence(problem)),
      tail_(at(problem.ranks), 0),
      end_(4 * at(problem.stages) * at(problem.micro_batches)) {
  for (int r = 0; r < problem.ranks; ++r) {
    if (problem.stages_of[at(r)].empty()) continue;
    const int first = problem.stages_of[at(r)].front();
    for (int s = first; s > 0; --s)
      tail_[at(r)] += problem.backward_latency[at(s)] + problem.duration[token_of(s - 1, Input)];
    if (first > 0 && problem.kinds == 3) tail_[at(r)] += problem.duration[token_of(0, Weight)];
    tail_[at(r)] += problem.update[first > 0 ? at(problem.rank_of[0]) : at(r)];
  }
}

std::int64_t NodeBound::of(const ProofState& state) {
  heads(state);
  std::int64_t bound = 0;
  for (int r = 0; r < problem_.ranks; ++r) {
    const auto& stages = problem_.stages_of[at(r)];
    if (stages.empty()) continue;
    if (problem_.objective == Objective::Makespan) {
      bound = std::max(bound, rank_end(state, r, true) + problem_.update[at(r)]);
      const Token last = token_of(stages.front(), Input);
      if (state.done[last] < problem_.micro_batches)
        bound = std::max(bound, rank_end(state, r, false) + tail_[at(r)]);
    } else if (state.begin[at(r)] != kNever) {
      bound = std::max(bound, rank_end(state, r, true) - state.begin[at(r)]);
    }
  }
  return bound;
}

void NodeBound::heads(const ProofState& state) {
  for (int k = 0; k < problem_.micro_batches; ++k) {
    for (int s = 0; s < problem_.stages; ++s) {
      const Token f = token_of(s, Forward);
      if (k < state.done[f]) continue;
      std::int64_t head = forward_head(state, s, k);
      if (k > state.done[f]) head = std::max(head, end_[place(f, k - 1)]);
      end_[place(f, k)] = head + problem_.duration[f];
    }
    for (int s = problem_.stages - 1; s >= 0; --s) {
      const Token i = token_of(s, Input), w = token_of(s, Weight);
      if (k >= state.done[i]) {
        std::int64_t head = input_head(state, s, k);
        if (k > state.done[i]) head = std::max(head, end_[place(i, k - 1)]);
        end_[place(i, k)] = head + problem_.duration[i];
      }
      if (problem_.kinds == 2 || k < state.done[w]) continue;
      std::int64_t head = state.clock[at(problem_.rank_of[at(s)])];
      if (k >= state.done[i]) head = std::max(head, end_[place(i, k)]);
      end_[place(w, k)] = head + problem_.duration[w];
    }
  }
}

std::int64_t NodeBound::forward_head(const ProofState& state, int s, int k) const {
  std::int64_t head = state.clock[at(problem_.rank_of[at(s)])];
  const std::int64_t arrived = state.arrival[state.input_place(token_of(s, Forward), k)];
  if (arrived != kNever) {
    head = std::max(head, arrived);
  } else {
    const Token before = token_of(s - 1, Forward);
    head = std::max(head, end_[place(before, k)] + problem_.forward_latency[at(s - 1)]);
  }
  const std::size_t row = at(s) * at(problem_.micro_batches) + at(k);
  const Token i = token_of(s, Input), w = token_of(s, Weight);
  const int inputs = before_.inputs[row], weights = before_.weights[row];
  if (inputs > state.done[i] && inputs <= k) head = std::max(head, end_[place(i, inputs - 1)]);
  if (weights > state.done[w] && weights <= k) head = std::max(head, end_[place(w, weights - 1)]);
  return head;
}

std::int64_t NodeBound::input_head(const ProofState& state, int s, int k) const {
  const Token f = token_of(s, Forward), i = token_of(s, Input);
  std::int64_t head = state.clock[at(problem_.rank_of[at(s)])];
  // What has to come before on the rank: the stage's own F's up to k and I's before k.
  head += problem_.duration[f] * std::max(0, k + 1 - state.done[f]) +
          problem_.duration[i] * (k - state.done[i]);
  if (k >= state.done[f]) head = std::max(head, end_[place(f, k)]);
  if (s + 1 == problem_.stages) return head;
  const std::int64_t arrived = state.arrival[state.input_place(i, k)];
  if (arrived != kNever) return std::max(head, arrived);
  return std::max(head,
                  end_[place(token_of(s + 1, Input), k)] + problem_.backward_latency[at(s + 1)]);
}

/// One machine: the rank's actions in the order of their heads. Each kind of each stage is a list
/// that is in that order already.
std::int64_t NodeBound::rank_end(const ProofState& state, int rank, bool with_weights) {
  struct List {
    Token token;
    int k;
  };
  std::array<List, 64> lists;
  std::size_t count = 0;
  for (const int s : problem_.stages_of[at(rank)]) {
    for (const Kind kind : {Forward, Input, Weight}) {
      if (kind == Weight && (problem_.kinds == 2 || !with_weights)) continue;
      const Token token = token_of(s, kind);
      if (state.done[token] < problem_.micro_batches && count < lists.size())
        lists[count++] = {token, state.done[token]};
    }
  }
  std::int64_t clock = state.clock[at(rank)];
  while (count > 0) {
    std::size_t best = 0;
    std::int64_t best_head = kNever;
    for (std::size_t l = 0; l < count; ++l) {
      const auto [token, k] = lists[l];
      const std::int64_t head = end_[place(token, k)] - problem_.duration[token];
      if (head < best_head) best = l, best_head = head;
    }
    clock = std::max(clock, best_head) + problem_.duration[lists[best].token];
    if (++lists[best].k == problem_.micro_batches) lists[best] = lists[--count];
  }
  return clock;
}

}  // namespace pipewright::planner::synthesis
