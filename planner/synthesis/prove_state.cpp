#include "planner/synthesis/prove_state.hpp"

#include <algorithm>

namespace pipewright::planner::synthesis {
ProofState::ProofState(const Problem& p)
    : problem(p),
      done(4 * at(p.stages), 0),
      arrival(2 * at(p.stages) * at(p.micro_batches), kNever),
      clock(at(p.ranks), 0),
      held(at(p.ranks), 0),
      begin(at(p.ranks), kNever),
      left_out(4 * at(p.stages), 0),
      taken(at(p.ranks)),
      left(p.size()) {
  std::fill_n(arrival.begin(), p.micro_batches, 0);
  std::fill(arrival.end() - p.micro_batches, arrival.end(), 0);
}

std::size_t ProofState::input_place(Token token, int k) const {
  const std::size_t half = kind_of(token) == Input ? at(problem.stages) : 0;
  return (half + at(stage_of(token))) * at(problem.micro_batches) + at(k);
}

std::int64_t ProofState::start_of(Token token) const {
  const int k = done[token];
  if (k == problem.micro_batches || left_out[token] != 0) return kNever;
  const Kind kind = kind_of(token);
  if (kind != Forward && k >= done[token - 1]) return kNever;
  const std::size_t rank = at(problem.rank_of[at(stage_of(token))]);
  if (held[rank] + problem.memory[token] > problem.limit[rank]) return kNever;
  if (kind == Weight) return clock[rank];
  const std::int64_t arrived = arrival[input_place(token, k)];
  return arrived == kNever ? kNever : std::max(clock[rank], arrived);
}

ProofState::Undo ProofState::take(Token token, std::int64_t start) {
  const int stage = stage_of(token), k = done[token]++;
  const std::size_t rank = at(problem.rank_of[at(stage)]), m = at(problem.micro_batches);
  Undo undo{token, clock[rank], begin[rank], arrival.size(), {}};
  for (const int s : problem.stages_of[rank]) {
    for (const Kind kind : {Forward, Input, Weight}) {
      if (left_out[token_of(s, kind)] == 0) continue;
      left_out[token_of(s, kind)] = 0;
      undo.left_out.push_back(token_of(s, kind));
    }
  }
  held[rank] += problem.memory[token];
  begin[rank] = std::min(begin[rank], start);
  clock[rank] = start + problem.duration[token];
  taken[rank].push_back(token);
  --left;
  if (kind_of(token) == Forward && stage + 1 < problem.stages) {
    undo.arrival = at(stage + 1) * m + at(k);
    arrival[undo.arrival] = clock[rank] + problem.forward_latency[at(stage)];
  } else if (kind_of(token) == Input && stage > 0) {
    undo.arrival = at(problem.stages + stage - 1) * m + at(k);
    arrival[undo.arrival] = clock[rank] + problem.backward_latency[at(stage)];
  }
  return undo;
}

void ProofState::take_back(const Undo& undo) {
  const std::size_t rank = at(problem.rank_of[at(stage_of(undo.token))]);
  if (undo.arrival < arrival.size()) arrival[undo.arrival] = kNever;
  ++left;
  taken[rank].pop_back();
  clock[rank] = undo.clock;
  begin[rank] = undo.begin;
  held[rank] -= problem.memory[undo.token];
  --done[undo.token];
  for (const Token token : undo.left_out) left_out[token] = 1;
}

Sequence ProofState::sequence() const {
  Sequence all;
  all.reserve(problem.size());
  for (const Sequence& rank : taken) all.insert(all.end(), rank.begin(), rank.end());
  return all;
}

}  // namespace pipewright::planner::synthesis
