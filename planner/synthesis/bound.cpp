#include "planner/synthesis/bound.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::planner::synthesis {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Least x with total - x * each <= limit, or 0.
std::int64_t needed(std::int64_t total, std::int64_t each, std::int64_t limit) {
  if (total <= limit || each <= 0) return 0;
  return (total - limit + each - 1) / each;
}

/// What memory forces at a stage: how many I's and W's have to come before the k-th F.
struct Stage {
  bool limited = false;
  std::int64_t limit = 0;
  std::int64_t held = 0, freed = 0;     // by the rank's stages up to this: Σ f, Σ (f - l)
  std::int64_t kept = 0, returned = 0;  // by this stage until W: least that is held, given back
  int lag = 0;                          // the first F that has to wait for an I

  int inputs_before(int k, int m) const {
    if (!limited) return 0;
    return static_cast<int>(std::min<std::int64_t>(needed((k + 1) * held, freed, limit), m));
  }
  int weights_before(int k, int m) const {
    if (!limited || returned <= 0) return 0;
    return static_cast<int>(std::min<std::int64_t>(needed((k + 1) * kept, returned, limit), m));
  }
};

bool ordinary(const Problem& problem, int rank) {
  for (const int s : problem.stages_of[at(rank)]) {
    const std::int64_t f = problem.memory[token_of(s, kForward)];
    const std::int64_t i = f + problem.memory[token_of(s, kInput)];
    if (f < 0 || i < 0 || i + problem.memory[token_of(s, kWeight)] < 0) return false;
  }
  return true;
}

std::vector<Stage> stages_of(const Problem& problem) {
  std::vector<Stage> stages(at(problem.stages));
  for (int r = 0; r < problem.ranks; ++r) {
    if (!problem.limited(r) || !ordinary(problem, r)) continue;
    std::int64_t held = 0, freed = 0;
    for (const int s : problem.stages_of[at(r)]) {
      const std::int64_t f = problem.memory[token_of(s, kForward)];
      const std::int64_t i = f + problem.memory[token_of(s, kInput)];
      const std::int64_t rest = i + problem.memory[token_of(s, kWeight)];
      Stage& stage = stages[at(s)];
      held += f;
      freed += f - std::min(i, rest);
      stage = {true, problem.limit[at(r)], held, freed, std::min(f, i), 0, 0};
      if (problem.kinds == 3) stage.returned = stage.kept - rest;
    }
  }
  for (Stage& stage : stages) {
    while (stage.lag < problem.micro_batches &&
           stage.inputs_before(stage.lag, problem.micro_batches) == 0)
      ++stage.lag;
  }
  return stages;
}

/// The earliest starts e(x) of the header, for stages from `source` on, its first F at 0.
class Heads {
 public:
  Heads(const Problem& problem, const std::vector<Stage>& stages)
      : problem_(problem), stages_(stages) {
    start_.resize(4 * at(problem.stages) * at(problem.micro_batches));
    first_input_.resize(at(problem.ranks));
  }

  void run(int source) {
    source_ = source;
    std::fill(first_input_.begin(), first_input_.end(), kNever);
    for (int k = 0; k < problem_.micro_batches; ++k) {
      for (int s = source; s < problem_.stages; ++s) set(token_of(s, kForward), k, forward(s, k));
      for (int s = problem_.stages - 1; s >= source; --s) {
        set(token_of(s, kInput), k, input(s, k));
        auto& first = first_input_[at(problem_.rank_of[at(s)])];
        if (k == 0) first = std::min(first, of(token_of(s, kInput), 0));
        if (problem_.kinds == 3) set(token_of(s, kWeight), k, weight(s, k));
      }
    }
  }

  std::int64_t of(Token token, int k) const { return start_[place(token, k)]; }
  std::int64_t end(Token token, int k) const { return of(token, k) + problem_.duration[token]; }
  /// When the actions of the rank have ended at the earliest; `with_weights` false: without W's.
  std::int64_t rank_end(int rank, bool with_weights);

 private:
  struct Work {  // on one rank: since its first F, and since its first I
    std::int64_t since_forward = 0, since_input = 0;
    void add(std::int64_t duration, int from, int to, int lag) {
      since_forward += duration * std::max(0, to - from);
      since_input += duration * std::max(0, to - std::max(from, lag));
    }
  };

  std::size_t place(Token token, int k) const { return token * at(problem_.micro_batches) + at(k); }
  void set(Token token, int k, std::int64_t time) {
    if (k > 0) time = std::max(time, end(token, k - 1));
    start_[place(token, k)] = time;
  }
  std::int64_t d(int stage, Kind kind) const { return problem_.duration[token_of(stage, kind)]; }

  std::int64_t after(const Work& work, int rank) const {
    int first = problem_.stages;
    for (const int s : problem_.stages_of[at(rank)]) {
      if (s >= source_) first = std::min(first, s);
    }
    std::int64_t time = of(token_of(first, kForward), 0) + work.since_forward;
    if (first_input_[at(rank)] != kNever && work.since_input > 0)
      time = std::max(time, first_input_[at(rank)] + work.since_input);
    return time;
  }

  std::int64_t forward(int s, int k) const {
    const int m = problem_.micro_batches, rank = problem_.rank_of[at(s)];
    std::int64_t time = 0;
    if (s > source_) time = end(token_of(s - 1, kForward), k) + problem_.forward_latency[at(s - 1)];
    const int inputs = stages_[at(s)].inputs_before(k, m);
    const int weights = problem_.kinds == 3 ? stages_[at(s)].weights_before(k, m) : 0;
    if (inputs > k || weights > k) return kNever / 4;  // no order at all
    if (inputs > 0) time = std::max(time, end(token_of(s, kInput), inputs - 1));
    if (weights > 0) time = std::max(time, end(token_of(s, kWeight), weights - 1));
    if (s == source_ && k == 0) return time;
    Work work;
    for (const int other : problem_.stages_of[at(rank)]) {
      if (other < source_) continue;
      const int lag = stages_[at(other)].lag;
      if (other <= s) work.add(d(other, kForward), 0, other < s ? k + 1 : k, lag);
      if (other > s) work.add(d(other, kForward), 0, inputs, lag);
      if (other >= s) work.add(d(other, kInput), 0, inputs, 0);
    }
    work.add(d(s, kWeight), 0, weights, 0);
    // The rank's first F has nothing before it.
    return work.since_forward == 0 ? time : std::max(time, after(work, rank));
  }

  Work before_input(int s, int k) const {
    const int m = problem_.micro_batches;
    Work work;
    for (const int other : problem_.stages_of[at(problem_.rank_of[at(s)])]) {
      if (other < source_) continue;
      const Stage& stage = stages_[at(other)];
      work.add(d(other, kForward), 0, k + 1, stage.lag);
      if (other >= s) work.add(d(other, kInput), 0, other == s ? k : k + 1, 0);
      const int weights = problem_.kinds == 3 ? stage.weights_before(k, m) : 0;
      work.add(d(other, kWeight), 0, std::min(weights, k), 0);
    }
    return work;
  }

  std::int64_t input(int s, int k) const {
    std::int64_t time = end(token_of(s, kForward), k);
    if (s + 1 < problem_.stages) {
      time = std::max(time, end(token_of(s + 1, kInput), k) + problem_.backward_latency[at(s + 1)]);
    }
    return std::max(time, after(before_input(s, k), problem_.rank_of[at(s)]));
  }

  std::int64_t weight(int s, int k) const { return end(token_of(s, kInput), k); }

  const Problem& problem_;
  const std::vector<Stage>& stages_;
  int source_ = 0;
  std::vector<std::int64_t> start_;
  std::vector<std::int64_t> first_input_;                    // by rank: e of its first I
  std::vector<std::pair<std::int64_t, std::int64_t>> jobs_;  // e, duration
};

std::int64_t Heads::rank_end(int rank, bool with_weights) {
  jobs_.clear();
  for (const int s : problem_.stages_of[at(rank)]) {
    for (const Kind kind : {kForward, kInput, kWeight}) {
      if (kind == kWeight && (problem_.kinds == 2 || !with_weights)) continue;
      const Token token = token_of(s, kind);
      for (int k = 0; k < problem_.micro_batches; ++k)
        jobs_.emplace_back(of(token, k), problem_.duration[token]);
    }
  }
  std::sort(jobs_.begin(), jobs_.end());
  std::int64_t clock = 0;
  for (const auto& [start, duration] : jobs_) clock = std::max(clock, start) + duration;
  return clock;
}

/// Point 5: how long the rank needs because of what its micro-batches hold.
std::int64_t memory_time(const Problem& problem, const Heads& heads, int rank) {
  if (!problem.limited(rank) || !ordinary(problem, rank) || problem.limit[at(rank)] <= 0) return 0;
  long double area = 0;
  for (const int s : problem.stages_of[at(rank)]) {
    const Token f = token_of(s, kForward), i = token_of(s, kInput), w = token_of(s, kWeight);
    const auto way = heads.end(i, 0) - heads.of(f, 0);
    area += static_cast<long double>(problem.memory[f]) * static_cast<long double>(way);
    area += static_cast<long double>(problem.memory[f] + problem.memory[i]) *
            static_cast<long double>(problem.kinds == 3 ? problem.duration[w] : 0);
  }
  area *= problem.micro_batches;
  // Rounded down by more than the error of the division.
  return static_cast<std::int64_t>(area / static_cast<long double>(problem.limit[at(rank)]) *
                                   (1 - 1e-12L));
}

std::int64_t span_bound(const Problem& problem, const std::vector<Stage>& stages) {
  Heads heads(problem, stages);
  std::int64_t bound = 0;
  for (int r = 0; r < problem.ranks; ++r) {
    if (problem.stages_of[at(r)].empty()) continue;
    heads.run(problem.stages_of[at(r)].front());
    bound = std::max({bound, heads.rank_end(r, true), memory_time(problem, heads, r)});
  }
  return bound;
}

std::int64_t makespan_bound(const Problem& problem, const std::vector<Stage>& stages) {
  Heads heads(problem, stages);
  heads.run(0);
  std::int64_t bound = 0;
  for (int r = 0; r < problem.ranks; ++r) {
    if (problem.stages_of[at(r)].empty()) continue;
    const int first = problem.stages_of[at(r)].front();
    std::int64_t tail = 0;
    for (int s = first; s > 0; --s)
      tail += problem.backward_latency[at(s)] + problem.duration[token_of(s - 1, kInput)];
    if (first > 0 && problem.kinds == 3) tail += problem.duration[token_of(0, kWeight)];
    bound = std::max({bound, heads.rank_end(r, true), heads.rank_end(r, false) + tail,
                      heads.of(token_of(first, kForward), 0) + memory_time(problem, heads, r)});
  }
  return bound;
}

}  // namespace

MemoryPrecedence memory_precedence(const Problem& problem) {
  const int m = problem.micro_batches;
  MemoryPrecedence before;
  for (const Stage& stage : stages_of(problem)) {
    for (int k = 0; k < m; ++k) {
      before.inputs.push_back(stage.inputs_before(k, m));
      before.weights.push_back(problem.kinds == 3 ? stage.weights_before(k, m) : 0);
    }
  }
  return before;
}

std::int64_t lower_bound(const Problem& problem) {
  const auto stages = stages_of(problem);
  return problem.objective == Objective::Span ? span_bound(problem, stages)
                                              : makespan_bound(problem, stages);
}

}  // namespace pipewright::planner::synthesis
