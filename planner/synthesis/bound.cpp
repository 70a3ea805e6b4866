#include "planner/synthesis/bound.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::planner::synthesis {
namespace {

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
  // By the rank's stages up to this: what an I and a W of each give back.
  std::int64_t freed_by_inputs = 0, freed_by_weights = 0;
  std::int64_t weight_each = 0;      // what every one of these W's gives back; 0: not all the same
  std::int64_t weight_duration = 0;  // how long the shortest of them takes
  double least_pace = 0;             // ns of W's for a unit of memory, where it is least

  int inputs_before(int k, int m) const {
    if (!limited) return 0;
    return static_cast<int>(std::min<std::int64_t>(needed((k + 1) * held, freed, limit), m));
  }
  /// If `inputs` micro-batches have had their I when the k-th F starts: the W work of the rank's
  /// stages that has to be over for it; kNever if that is not enough.
  std::int64_t weight_work(int k, int inputs) const {
    if (!limited) return 0;
    const std::int64_t over = (k + 1) * held - inputs * freed_by_inputs - limit;
    if (over <= 0) return 0;
    if (freed_by_weights <= 0 || over > inputs * freed_by_weights) return kNever;
    if (weight_each > 0) return needed(over, weight_each, 0) * weight_duration;
    return static_cast<std::int64_t>(static_cast<double>(over) * least_pace * (1 - 1e-9));
  }
  int weights_before(int k, int m) const {
    if (!limited || returned <= 0) return 0;
    return static_cast<int>(std::min<std::int64_t>(needed((k + 1) * kept, returned, limit), m));
  }
};

bool ordinary(const Problem& problem, int rank) {
  for (const int s : problem.stages_of[at(rank)]) {
    const std::int64_t f = problem.memory[token_of(s, Forward)];
    const std::int64_t i = f + problem.memory[token_of(s, Input)];
    if (f < 0 || i < 0 || i + problem.memory[token_of(s, Weight)] < 0) return false;
  }
  return true;
}

void add_weight(const Problem& problem, int stage, Stage& sum) {
  const Token w = token_of(stage, Weight);
  const std::int64_t back = problem.kinds == 3 ? -problem.memory[w] : 0;
  if (back <= 0) return;
  const bool first = sum.freed_by_weights == 0;
  const std::int64_t duration = problem.duration[w];
  const double pace = static_cast<double>(duration) / static_cast<double>(back);
  sum.least_pace = first ? pace : std::min(sum.least_pace, pace);
  sum.weight_duration = first ? duration : std::min(sum.weight_duration, duration);
  sum.weight_each = first || sum.weight_each == back ? back : 0;
  sum.freed_by_weights += back;
}

/// How much F work fits on the rank before its first I, with nothing given back until then.
std::int64_t forward_room(const Problem& problem, int rank) {
  const auto& stages = problem.stages_of[at(rank)];
  struct Item {
    std::int64_t duration, memory;
  };
  std::vector<Item> items;
  for (const int s : stages)
    items.push_back({problem.duration[token_of(s, Forward)], problem.memory[token_of(s, Forward)]});
  const bool limited = problem.limited(rank) && ordinary(problem, rank);
  // Most work for the memory first; the last that does not fit whole counts by its part.
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return static_cast<double>(a.duration) * static_cast<double>(b.memory) >
           static_cast<double>(b.duration) * static_cast<double>(a.memory);
  });
  const bool equal = std::all_of(items.begin(), items.end(), [&](const Item& item) {
    return item.memory == items.front().memory;
  });
  std::int64_t room = 0, left = problem.limit[at(rank)];
  for (const auto& [duration, memory] : items) {
    std::int64_t count = problem.micro_batches;
    if (limited && memory > 0) count = std::min(count, left / memory);
    room += count * duration;
    if (!limited) continue;
    left -= count * memory;
    if (count == problem.micro_batches || equal) continue;
    const double part = static_cast<double>(left) / static_cast<double>(memory);
    return room + static_cast<std::int64_t>(part * static_cast<double>(duration)) + 1;
  }
  return room;
}

std::vector<Stage> stages_of(const Problem& problem) {
  std::vector<Stage> stages(at(problem.stages));
  for (int r = 0; r < problem.ranks; ++r) {
    if (!problem.limited(r) || !ordinary(problem, r)) continue;
    Stage sum;
    for (const int s : problem.stages_of[at(r)]) {
      const std::int64_t f = problem.memory[token_of(s, Forward)];
      const std::int64_t i = f + problem.memory[token_of(s, Input)];
      const std::int64_t rest = i + problem.memory[token_of(s, Weight)];
      sum.limited = true;
      sum.limit = problem.limit[at(r)];
      sum.held += f;
      sum.freed += f - std::min(i, rest);
      sum.kept = std::min(f, i);
      sum.returned = problem.kinds == 3 ? sum.kept - rest : 0;
      sum.freed_by_inputs += std::max<std::int64_t>(0, f - i);
      add_weight(problem, s, sum);
      stages[at(s)] = sum;
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
    for (int r = 0; r < problem.ranks; ++r) room_.push_back(forward_room(problem, r));
  }

  void run(int source) {
    source_ = source;
    std::fill(first_input_.begin(), first_input_.end(), kNever);
    for (int k = 0; k < problem_.micro_batches; ++k) {
      for (int s = source; s < problem_.stages; ++s) set(token_of(s, Forward), k, forward(s, k));
      for (int s = problem_.stages - 1; s >= source; --s) {
        set(token_of(s, Input), k, input(s, k));
        auto& first = first_input_[at(problem_.rank_of[at(s)])];
        if (k == 0) first = std::min(first, of(token_of(s, Input), 0));
        if (problem_.kinds == 3) set(token_of(s, Weight), k, weight(s, k));
      }
    }
  }

  std::int64_t of(Token token, int k) const { return start_[place(token, k)]; }
  std::int64_t end(Token token, int k) const { return of(token, k) + problem_.duration[token]; }
  /// When the actions of the rank have ended at the earliest; `with_weights` false: without W's.
  std::int64_t rank_end(int rank, bool with_weights);

 private:
  /// What has to come before an action on its rank.
  struct Work {
    std::int64_t forward = 0;  // F's
    std::int64_t lagged = 0;   // of these, known to be after the rank's first I
    std::int64_t other = 0;    // I's and W's
    void add_forwards(std::int64_t duration, int count, int lag) {
      forward += duration * count;
      lagged += duration * std::max(0, count - lag);
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
    const std::int64_t time = of(token_of(first, Forward), 0) + work.forward + work.other;
    if (first_input_[at(rank)] == kNever) return time;
    const std::int64_t late =
        std::max({std::int64_t{0}, work.lagged, work.forward - room_[at(rank)]});
    // Nothing is known to be after the first I: then all of it may be before.
    if (late <= 0 && work.other == 0) return time;
    return std::max(time, first_input_[at(rank)] + late + work.other);
  }

  std::int64_t forward(int s, int k) const {
    const int m = problem_.micro_batches;
    if (s == source_ && k == 0) return 0;
    std::int64_t time = 0;
    if (s > source_) time = end(token_of(s - 1, Forward), k) + problem_.forward_latency[at(s - 1)];
    const int weights = problem_.kinds == 3 ? stages_[at(s)].weights_before(k, m) : 0;
    if (weights > k) return kNever / 4;  // no order at all
    if (weights > 0) time = std::max(time, end(token_of(s, Weight), weights - 1));
    // As many I's as memory asks for at least, with the W's that then are needed; or more I's with
    // fewer W's. One of these it is.
    std::int64_t best = kNever / 4;
    for (int inputs = stages_[at(s)].inputs_before(k, m); inputs <= k; ++inputs) {
      const std::int64_t work = stages_[at(s)].weight_work(k, inputs);
      if (work == kNever) continue;
      const std::int64_t least = weights * d(s, Weight);
      best = std::min(best, forward_after(s, k, inputs, std::max(work, least)));
      if (work <= least) break;
    }
    return std::max(time, best);
  }

  /// F k of the stage after this many of its I's and W's for so long.
  std::int64_t forward_after(int s, int k, int inputs, std::int64_t weight_work) const {
    Work work;
    work.other = weight_work;
    for (const int other : problem_.stages_of[at(problem_.rank_of[at(s)])]) {
      if (other < source_) continue;
      const int count = other < s ? k + 1 : other == s ? k : inputs;
      work.add_forwards(d(other, Forward), count, stages_[at(other)].lag);
      if (other >= s) work.other += d(other, Input) * inputs;
    }
    std::int64_t time = inputs > 0 ? end(token_of(s, Input), inputs - 1) : 0;
    // The rank's first F has nothing before it.
    if (work.forward + work.other > 0) time = std::max(time, after(work, problem_.rank_of[at(s)]));
    return time;
  }

  Work before_input(int s, int k) const {
    const int m = problem_.micro_batches;
    Work work;
    for (const int other : problem_.stages_of[at(problem_.rank_of[at(s)])]) {
      if (other < source_) continue;
      const Stage& stage = stages_[at(other)];
      work.add_forwards(d(other, Forward), k + 1, stage.lag);
      if (other >= s) work.other += d(other, Input) * (other == s ? k : k + 1);
      const int weights = problem_.kinds == 3 ? stage.weights_before(k, m) : 0;
      work.other += d(other, Weight) * std::min(weights, k);
    }
    return work;
  }

  std::int64_t input(int s, int k) const {
    std::int64_t time = end(token_of(s, Forward), k);
    if (s + 1 < problem_.stages) {
      time = std::max(time, end(token_of(s + 1, Input), k) + problem_.backward_latency[at(s + 1)]);
    }
    return std::max(time, after(before_input(s, k), problem_.rank_of[at(s)]));
  }

  std::int64_t weight(int s, int k) const { return end(token_of(s, Input), k); }

  const Problem& problem_;
  const std::vector<Stage>& stages_;
  int source_ = 0;
  std::vector<std::int64_t> start_;
  std::vector<std::int64_t> first_input_;                    // by rank: e of its first I
  std::vector<std::int64_t> room_;                           // by rank: F work before that, at most
  std::vector<std::pair<std::int64_t, std::int64_t>> jobs_;  // e, duration
};

std::int64_t Heads::rank_end(int rank, bool with_weights) {
  jobs_.clear();
  for (const int s : problem_.stages_of[at(rank)]) {
    for (const Kind kind : {Forward, Input, Weight}) {
      if (kind == Weight && (problem_.kinds == 2 || !with_weights)) continue;
      const Token token = token_of(s, kind);
      for (int k = 0; k < problem_.micro_batches; ++k)
        jobs_.emplace_back(of(token, k), problem_.duration[token]);
    }
  }
  std::sort(jobs_.begin(), jobs_.end());
  std::int64_t clock = 0;
  for (const auto& [start, duration] : jobs_) clock = std::max(clock, start) + duration;
  if (!with_weights) return clock;
  return std::max(clock, first_input_[at(rank)] + problem_.work[at(rank)] - room_[at(rank)]);
}

/// Point 5: how long the rank needs because of what its micro-batches hold.
std::int64_t memory_time(const Problem& problem, const Heads& heads, int rank) {
  if (!problem.limited(rank) || !ordinary(problem, rank) || problem.limit[at(rank)] <= 0) return 0;
  long double area = 0;
  for (const int s : problem.stages_of[at(rank)]) {
    const Token f = token_of(s, Forward), i = token_of(s, Input), w = token_of(s, Weight);
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
      tail += problem.backward_latency[at(s)] + problem.duration[token_of(s - 1, Input)];
    if (first > 0 && problem.kinds == 3) tail += problem.duration[token_of(0, Weight)];
    tail += problem.update[first > 0 ? at(problem.rank_of[0]) : at(r)];
    const std::int64_t busy =
        std::max(heads.rank_end(r, true),
                 heads.of(token_of(first, Forward), 0) + memory_time(problem, heads, r));
    bound = std::max({bound, busy + problem.update[at(r)], heads.rank_end(r, false) + tail});
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
