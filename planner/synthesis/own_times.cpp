#include "planner/synthesis/own_times.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>

#include "planner/synthesis/bound.hpp"

namespace pipewright::planner::synthesis {
namespace {

ActionKind kind_of_token(const Problem& problem, Token token) {
  switch (kind_of(token)) {
    case Forward:
      return ActionKind::F;
    case Input:
      return problem.kinds == 2 ? ActionKind::B : ActionKind::I;
    default:
      return ActionKind::W;
  }
}

std::vector<Token> tokens_of(const Problem& problem) {
  std::vector<Token> tokens;
  for (int s = 0; s < problem.stages; ++s) {
    for (int kind = 0; kind < problem.kinds; ++kind)
      tokens.push_back(token_of(s, static_cast<Kind>(kind)));
  }
  return tokens;
}

OwnTimes times_of_replica(const Problem& problem, const SynthesisRequest& request, int replica) {
  const int m = problem.micro_batches;
  OwnTimes times;
  times.time.assign(problem.duration.size() * at(m), 0);
  for (const Token token : tokens_of(problem)) {
    for (int k = 0; k < m; ++k) {
      const Action action{.kind = kind_of_token(problem, token),
                          .stage = StageId(stage_of(token)),
                          .micro_batch = MicroBatchId(replica * m + k)};
      times.time[token * at(m) + at(k)] = request.costs.compute_time(action).value;
    }
  }
  times.update.assign(at(problem.ranks), 0);
  if (!request.with_updates || request.objective != Objective::Makespan) return times;
  for (int r = 0; r < problem.ranks; ++r) {
    times.update[at(r)] = request.costs
                              .update_time(RankId(replica * problem.ranks + r),
                                           request.placement.stages_of(RankId(r)))
                              .value;
  }
  return times;
}

void take_longer(const std::vector<std::int64_t>& from, std::vector<std::int64_t>& most) {
  std::ranges::transform(from, most, most.begin(), std::ranges::max);
}

std::int64_t work_of(const Problem& problem, const OwnTimes& times, int rank) {
  std::int64_t work = 0;
  const std::size_t m = at(problem.micro_batches);
  for (const int s : problem.stages_of[at(rank)]) {
    const auto from = times.time.begin() + static_cast<std::ptrdiff_t>(token_of(s, Forward) * m);
    work = std::accumulate(from, from + static_cast<std::ptrdiff_t>(3 * m), work);
  }
  return work;
}

/// What is left of an action's micro-batch, and when it can begin.
struct Job {
  std::int64_t head = 0, time = 0, tail = 0;
};

/// When jobs that may be interrupted, and their tails, are over on one machine.
std::int64_t one_machine(std::vector<Job>& jobs) {
  std::ranges::sort(jobs, {}, &Job::head);
  std::priority_queue<std::pair<std::int64_t, std::int64_t>> open;  // tail, what is left of it
  std::int64_t now = 0, end = 0;
  for (std::size_t next = 0; next < jobs.size() || !open.empty();) {
    if (open.empty()) now = std::max(now, jobs[next].head);
    for (; next < jobs.size() && jobs[next].head <= now; ++next)
      open.emplace(jobs[next].tail, jobs[next].time);
    const auto [tail, left] = open.top();
    open.pop();
    const std::int64_t free = next < jobs.size() ? jobs[next].head - now : kNever;
    if (left > free) {
      now += free;
      open.emplace(tail, left - free);
    } else {
      now += left;
      end = std::max(end, now + tail);
    }
  }
  return end;
}

/// The jobs of each rank: every action on the way of its own micro-batch.
class Ways {
 public:
  Ways(const Problem& problem, const OwnTimes& times)
      : problem_(problem), times_(times), jobs_(at(problem.ranks)) {
    for (int k = 0; k < problem.micro_batches; ++k) add(k);
  }

  std::int64_t bound() {
    std::int64_t most = 0;
    for (auto& jobs : jobs_) most = std::max(most, one_machine(jobs));
    return most;
  }

 private:
  std::int64_t time(Token token, int k) const {
    return times_.time[token * at(problem_.micro_batches) + at(k)];
  }
  std::int64_t update(int stage) const { return times_.update[at(problem_.rank_of[at(stage)])]; }

  void add(int k) {
    const int last = problem_.stages - 1;
    std::vector<std::int64_t> head(problem_.duration.size(), 0);
    std::int64_t now = 0;
    for (int s = 0; s <= last; ++s) {
      const Token f = token_of(s, Forward);
      head[f] = now;
      now += time(f, k) + (s < last ? problem_.forward_latency[at(s)] : 0);
    }
    for (int s = last; s >= 0; --s) {
      const Token i = token_of(s, Input);
      head[i] = now;
      head[token_of(s, Weight)] = now + time(i, k);
      now += time(i, k) + problem_.backward_latency[at(s)];
    }
    // Back from the end: what follows an action of stage s and its message.
    std::int64_t rest = 0;
    const auto put = [&](Token token, std::int64_t tail) {
      jobs_[at(problem_.rank_of[at(stage_of(token))])].push_back(
          {head[token], time(token, k), tail});
    };
    for (int s = 0; s <= last; ++s) {
      const Token i = token_of(s, Input), w = token_of(s, Weight);
      std::int64_t tail = std::max(update(s), s == 0 ? 0 : rest + problem_.backward_latency[at(s)]);
      if (problem_.kinds == 3) {
        put(w, update(s));
        tail = std::max(tail, time(w, k) + update(s));
      }
      put(i, tail);
      rest = time(i, k) + tail;
    }
    for (int s = last; s >= 0; --s) {
      const Token f = token_of(s, Forward);
      const std::int64_t tail = rest + (s < last ? problem_.forward_latency[at(s)] : 0);
      put(f, tail);
      rest = time(f, k) + tail;
    }
  }

  const Problem& problem_;
  const OwnTimes& times_;
  std::vector<std::vector<Job>> jobs_;
};

/// Each action as long as its shortest.
Problem shortened(const Problem& problem, const OwnTimes& times) {
  Problem shorter = problem;
  shorter.own = {};
  shorter.replicas.clear();
  shorter.turn.clear();
  shorter.update = times.update;
  const auto m = static_cast<std::ptrdiff_t>(problem.micro_batches);
  std::ranges::fill(shorter.work, 0);
  for (const Token token : tokens_of(problem)) {
    const auto from = times.time.begin() + static_cast<std::ptrdiff_t>(token) * m;
    shorter.duration[token] = *std::min_element(from, from + m);
    shorter.work[at(problem.rank_of[at(stage_of(token))])] += shorter.duration[token] * m;
  }
  return shorter;
}

std::int64_t bound_of(const Problem& problem, const OwnTimes& times) {
  std::int64_t bound = lower_bound(shortened(problem, times));
  if (problem.objective == Objective::Makespan)
    return std::max(bound, Ways(problem, times).bound());
  for (int r = 0; r < problem.ranks; ++r) bound = std::max(bound, work_of(problem, times, r));
  return bound;
}

}  // namespace

void search_what_is_named(const std::vector<ActionTime>& rows, SynthesisRequest& request) {
  bool joined = false, apart = false;
  for (const ActionTime& row : rows) {
    const ActionKind kind = row.action.action.kind;
    joined |= kind == ActionKind::B;
    apart |= kind == ActionKind::I || kind == ActionKind::W;
  }
  if (joined && !apart) request.split_backward = false;
  if (apart && !joined) request.only_split = true;
}

int replicas_of(const CostTable& costs) {
  return costs.actions == nullptr ? 1 : costs.actions->shape().replicas;
}

CostTable costs_of_replica(const CostTable& costs, int replica) {
  CostTable alone = costs;
  std::vector<ActionTime> rows;
  for (ActionTime row : costs.actions->rows()) {
    if (row.replica != replica) continue;
    row.replica = 0;
    rows.push_back(std::move(row));
  }
  ReplicaShape shape = costs.actions->shape();
  shape.replicas = 1;
  alone.actions = std::make_shared<const ActionTimes>(std::move(rows), shape);
  return alone;
}

void set_own_times(Problem& problem, const SynthesisRequest& request) {
  const int replicas = replicas_of(request.costs);
  for (int d = 0; d < replicas; ++d)
    problem.replicas.push_back(times_of_replica(problem, request, d));
  problem.own = problem.replicas.front();
  for (const OwnTimes& replica : problem.replicas) {
    take_longer(replica.time, problem.own.time);
    take_longer(replica.update, problem.own.update);
  }
  if (replicas == 1) problem.replicas.clear();
  problem.update = problem.own.update;
  const auto m = static_cast<std::ptrdiff_t>(problem.micro_batches);
  for (const Token token : tokens_of(problem)) {
    const auto from = problem.own.time.begin() + static_cast<std::ptrdiff_t>(token) * m;
    problem.duration[token] = std::accumulate(from, from + m, std::int64_t{0}) / m;
  }
  for (int r = 0; r < problem.ranks; ++r) problem.work[at(r)] = work_of(problem, problem.own, r);
  problem.turn.resize(at(problem.micro_batches));
  std::iota(problem.turn.begin(), problem.turn.end(), 0);
}

std::int64_t own_bound(const Problem& problem) {
  if (problem.replicas.empty()) return bound_of(problem, problem.own);
  std::int64_t bound = 0;
  for (const OwnTimes& replica : problem.replicas)
    bound = std::max(bound, bound_of(problem, replica));
  return bound;
}

}  // namespace pipewright::planner::synthesis
