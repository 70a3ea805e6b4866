#include "planner/synthesis/evaluate.hpp"

#include <algorithm>

namespace pipewright::planner::synthesis {
namespace {

constexpr std::size_t kNothing = std::numeric_limits<std::size_t>::max();

}  // namespace

Evaluator::Evaluator(const Problem& problem)
    : problem_(problem),
      update_(&problem.update),
      arrival_(2 * at(problem.stages) * at(problem.micro_batches)),
      start_(problem.size()),
      clock_(at(problem.ranks)),
      cursor_(at(problem.ranks)),
      awaited_(at(problem.ranks)),
      done_(4 * at(problem.stages)) {
  awake_.reserve(at(problem.ranks) + 1);
  if (!problem.own.time.empty()) use(problem.own);
}

bool Evaluator::run(const Sequence& sequence) {
  ++runs_;
  if (problem_.replicas.empty()) return run_replica(sequence);
  std::int64_t most = -1, makespan = 0, span = 0;
  const OwnTimes* slowest = nullptr;
  for (const OwnTimes& replica : problem_.replicas) {
    use(replica);
    if (!run_replica(sequence)) return false;
    makespan = std::max(makespan, makespan_);
    span = std::max(span, span_);
    if (value() <= most) continue;
    most = value();
    slowest = &replica;
  }
  if (slowest != &problem_.replicas.back()) {
    use(*slowest);
    run_replica(sequence);
  }
  makespan_ = makespan;
  span_ = span;
  return true;
}

bool Evaluator::run_replica(const Sequence& sequence) {
  const std::size_t m = at(problem_.micro_batches);
  std::fill(arrival_.begin(), arrival_.end(), kNever);
  // The model's inputs are there, and the last stage's gradient follows from its own F.
  std::fill_n(arrival_.begin(), m, 0);
  std::fill(arrival_.end() - static_cast<std::ptrdiff_t>(m), arrival_.end(), 0);
  std::fill(clock_.begin(), clock_.end(), 0);
  std::fill(done_.begin(), done_.end(), 0);
  std::fill(awaited_.begin(), awaited_.end(), kNothing);
  std::copy(problem_.first.begin(), problem_.first.end() - 1, cursor_.begin());
  awake_.clear();
  for (int r = problem_.ranks - 1; r >= 0; --r) awake_.push_back(r);
  while (!awake_.empty()) {
    const int rank = awake_.back();
    awake_.pop_back();
    advance(rank, sequence.data());
  }
  makespan_ = span_ = 0;
  for (int r = 0; r < problem_.ranks; ++r) {
    if (cursor_[at(r)] != problem_.first[at(r) + 1]) return false;
    makespan_ = std::max(makespan_, clock_[at(r)] + update_of(r));
    span_ = std::max(span_, clock_[at(r)] - rank_start(r));
  }
  return true;
}

std::int64_t Evaluator::rank_start(int rank) const {
  const std::size_t first = problem_.first[at(rank)];
  return first == problem_.first[at(rank) + 1] ? 0 : start_[first];
}

int Evaluator::critical_rank() const {
  for (int r = 0; r < problem_.ranks; ++r) {
    const bool makespan = problem_.objective == Objective::Makespan;
    const std::int64_t before = makespan ? -update_of(r) : rank_start(r);
    if (clock_[at(r)] - before == value()) return r;
  }
  return 0;
}

void Evaluator::deliver(std::size_t arrival, int rank, std::int64_t time) {
  arrival_[arrival] = time;
  if (awaited_[at(rank)] != arrival) return;
  awaited_[at(rank)] = kNothing;
  awake_.push_back(rank);
}

void Evaluator::advance(int rank, const Token* tokens) {
  const std::size_t m = at(problem_.micro_batches);
  const std::size_t half = at(problem_.stages) * m;
  const std::size_t stop = problem_.first[at(rank) + 1];
  std::int64_t clock = clock_[at(rank)];
  std::size_t i = cursor_[at(rank)];
  for (; i < stop; ++i) {
    const Token token = tokens[i];
    const std::size_t stage = token >> 2;
    const auto kind = kind_of(token);
    int& done = done_[token];
    if (kind != Weight) {
      const std::size_t mine = (kind == Input ? half : 0) + stage * m + at(done);
      const std::int64_t arrived = arrival_[mine];
      if (arrived == kNever) {
        awaited_[at(rank)] = mine;
        break;
      }
      clock = std::max(clock, arrived);
    }
    if (kind != Forward && done >= done_[token - 1]) break;  // before its own F or I: never
    start_[i] = clock;
    clock += time(token, done);
    const std::size_t k = at(done++);
    if (kind == Forward && stage + 1 < at(problem_.stages)) {
      deliver((stage + 1) * m + k, problem_.rank_of[stage + 1],
              clock + problem_.forward_latency[stage]);
    } else if (kind == Input && stage > 0) {
      deliver(half + (stage - 1) * m + k, problem_.rank_of[stage - 1],
              clock + problem_.backward_latency[stage]);
    }
  }
  cursor_[at(rank)] = i;
  clock_[at(rank)] = clock;
}

}  // namespace pipewright::planner::synthesis
