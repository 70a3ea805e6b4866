#include "planner/synthesis/problem.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "planner/base/number_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/synthesis/own_times.hpp"

namespace pipewright::planner::synthesis {
namespace {

constexpr std::size_t kMostActions = 20'000'000;

void check_request(const SynthesisRequest& request) {
  const Placement& placement = request.placement;
  if (placement.looks_at_micro_batch()) {
    throw InputError(
        "synthesis needs a placement that does not look at the micro-batch: one rank a stage");
  }
  if (placement.ranks() < 1 || placement.stages() < 1 || request.micro_batches < 1) {
    throw InputError("synthesis needs at least 1 rank, 1 stage and 1 micro-batch");
  }
  const auto stages = at(placement.stages());
  if (request.costs.stages.size() != stages) {
    throw InputError("the cost table has " + std::to_string(request.costs.stages.size()) +
                     " stages, the placement " + std::to_string(stages));
  }
  if (!request.costs.memory.empty() && request.costs.memory.size() != stages) {
    throw InputError("the memory table has " + std::to_string(request.costs.memory.size()) +
                     " stages, the placement " + std::to_string(stages));
  }
  if (request.memory_limit.size() > 1 && request.memory_limit.size() != at(placement.ranks())) {
    throw InputError("there are " + std::to_string(request.memory_limit.size()) +
                     " memory limits for " + count_of(placement.ranks(), "rank") +
                     "; give one for all, or one a rank");
  }
  if (3 * stages * at(request.micro_batches) > kMostActions) {
    throw InputError("the order would have more than 20 million actions; use fewer micro-batches");
  }
  for (const StageCosts& costs : request.costs.stages) {
    if (std::min({costs.f.value, costs.i.value, costs.w.value, costs.b.value}) < 0) {
      throw InputError("a computation cannot take less than no time");
    }
  }
}

void set_stage(Problem& problem, const SynthesisRequest& request, int stage) {
  const StageCosts& costs = request.costs.stages[at(stage)];
  const StageMemory memory = request.costs.memory_or_unit(stage);
  const bool fused = problem.kinds == 2;
  const Token f = token_of(stage, Forward), i = token_of(stage, Input);
  problem.duration[f] = costs.f.value;
  problem.duration[i] = fused ? costs.b.value : costs.i.value;
  problem.memory[f] = memory.f.value;
  problem.memory[i] = fused ? memory.i.value + memory.w.value : memory.i.value;
  if (!fused) {
    problem.duration[token_of(stage, Weight)] = costs.w.value;
    problem.memory[token_of(stage, Weight)] = memory.w.value;
  }
  const RankId here(problem.rank_of[at(stage)]);
  const auto latency = [&](ActionKind kind, int next) {
    if (next < 0 || next >= problem.stages) return std::int64_t{0};
    const RankId there(problem.rank_of[at(next)]);
    if (there == here) return std::int64_t{0};
    return request.costs.transfer_time({kind, StageId(stage), here, there}, problem.ranks).value;
  };
  problem.forward_latency[at(stage)] = latency(ActionKind::SendF, stage + 1);
  problem.backward_latency[at(stage)] = latency(ActionKind::SendB, stage - 1);
}

void set_rank(Problem& problem, const SynthesisRequest& request, int rank) {
  std::int64_t constant = 0, work = 0;
  for (const int stage : problem.stages_of[at(rank)]) {
    constant += request.costs.memory_or_unit(stage).constant.value;
    for (Token t = token_of(stage, Forward); t <= token_of(stage, Weight); ++t)
      work += problem.duration[t] * problem.micro_batches;
  }
  problem.constant[at(rank)] = constant;
  if (request.with_updates && request.objective == Objective::Makespan)
    problem.update[at(rank)] =
        request.costs.update_time(RankId(rank), request.placement.stages_of(RankId(rank))).value;
  problem.work[at(rank)] = work;
  problem.first[at(rank) + 1] = problem.first[at(rank)] + problem.stages_of[at(rank)].size() *
                                                              at(problem.kinds) *
                                                              at(problem.micro_batches);
  const auto& limits = request.memory_limit;
  const std::int64_t limit = limits.empty() ? 0 : limits[limits.size() == 1 ? 0 : at(rank)].value;
  problem.limit[at(rank)] = limit > 0 ? limit - constant : kNever;
}

}  // namespace

Problem problem_of(const SynthesisRequest& request) {
  check_request(request);
  Problem problem;
  problem.placement = request.placement;
  problem.ranks = request.placement.ranks();
  problem.stages = request.placement.stages();
  problem.micro_batches = request.micro_batches;
  problem.kinds = request.split_backward ? 3 : 2;
  problem.objective = request.objective;
  problem.stages_of.resize(at(problem.ranks));
  for (int s = 0; s < problem.stages; ++s) {
    problem.rank_of.push_back(request.placement.rank_of(StageId(s), MicroBatchId(0)).value);
    problem.stages_of[at(problem.rank_of.back())].push_back(s);
  }
  problem.duration.assign(4 * at(problem.stages), 0);
  problem.memory.assign(4 * at(problem.stages), 0);
  problem.forward_latency.assign(at(problem.stages), 0);
  problem.backward_latency.assign(at(problem.stages), 0);
  for (int s = 0; s < problem.stages; ++s) set_stage(problem, request, s);
  problem.limit.assign(at(problem.ranks), kNever);
  problem.constant.assign(at(problem.ranks), 0);
  problem.work.assign(at(problem.ranks), 0);
  problem.update.assign(at(problem.ranks), 0);
  problem.first.assign(at(problem.ranks) + 1, 0);
  for (int r = 0; r < problem.ranks; ++r) set_rank(problem, request, r);
  if (request.costs.actions != nullptr) set_own_times(problem, request);
  return problem;
}

Order order_of(const Problem& problem, const Sequence& sequence) {
  Order order;
  order.placement = problem.placement;
  order.micro_batches = problem.micro_batches;
  order.ranks.resize(at(problem.ranks));
  std::vector<int> done(problem.duration.size(), 0);
  const ActionKind kinds[] = {ActionKind::F, problem.kinds == 2 ? ActionKind::B : ActionKind::I,
                              ActionKind::W};
  for (int r = 0; r < problem.ranks; ++r) {
    auto& cells = order.ranks[at(r)];
    cells.reserve(problem.first[at(r) + 1] - problem.first[at(r)]);
    for (std::size_t i = problem.first[at(r)]; i < problem.first[at(r) + 1]; ++i) {
      const Token token = sequence[i];
      const int k = done[token]++;
      append(cells, kinds[kind_of(token)], stage_of(token),
             problem.turn.empty() ? k : problem.turn[at(k)]);
    }
  }
  return order;
}

namespace {

/// Appends a cell's tokens; false for what a sequence cannot hold.
bool append_tokens(const Problem& problem, int rank, const Cell& cell, Sequence& sequence) {
  const Action& action = cell.action;
  if (cell.partner || action.version >= 0) return false;
  if (!is_compute(action.kind)) return action.kind == ActionKind::Idle;
  const int stage = action.stage.value;
  if (stage < 0 || stage >= problem.stages || problem.rank_of[at(stage)] != rank) return false;
  const bool split = problem.kinds == 3;
  switch (action.kind) {
    case ActionKind::F:
      sequence.push_back(token_of(stage, Forward));
      break;
    case ActionKind::I:
      if (split) sequence.push_back(token_of(stage, Input));
      break;
    case ActionKind::W:
      sequence.push_back(token_of(stage, split ? Weight : Input));
      break;
    default:
      sequence.push_back(token_of(stage, Input));
      if (split) sequence.push_back(token_of(stage, Weight));
  }
  return true;
}

}  // namespace

std::optional<Sequence> sequence_of(const Problem& problem, const Order& order) {
  if (order.rank_count() != problem.ranks || order.micro_batches != problem.micro_batches)
    return std::nullopt;
  Sequence sequence;
  sequence.reserve(problem.size());
  for (int r = 0; r < problem.ranks; ++r) {
    for (const Cell& cell : order.ranks[at(r)]) {
      if (!append_tokens(problem, r, cell, sequence)) return std::nullopt;
    }
    if (sequence.size() != problem.first[at(r) + 1]) return std::nullopt;
  }
  return sequence;
}

std::vector<int> turn_of(const Order& order) {
  std::vector<int> turn;
  for (const auto& cells : order.ranks) {
    for (const Cell& cell : cells) {
      for (const Action* action : {&cell.action, cell.partner ? &*cell.partner : nullptr}) {
        if (action != nullptr && action->kind == ActionKind::F && action->stage.value == 0)
          turn.push_back(action->micro_batch.value);
      }
    }
  }
  return turn;
}

bool keeps_turns(const Order& order, const std::vector<int>& turn) {
  std::map<std::pair<ActionKind, int>, std::size_t> done;
  for (const auto& cells : order.ranks) {
    for (const Cell& cell : cells) {
      for (const Action* action : {&cell.action, cell.partner ? &*cell.partner : nullptr}) {
        if (action == nullptr || !is_compute(action->kind)) continue;
        const std::size_t k = done[{action->kind, action->stage.value}]++;
        if (k >= turn.size() || turn[k] != action->micro_batch.value) return false;
      }
    }
  }
  return true;
}

std::int64_t peak_of(const Problem& problem, const Sequence& sequence, int rank) {
  std::int64_t held = 0, peak = 0;
  for (std::size_t i = problem.first[at(rank)]; i < problem.first[at(rank) + 1]; ++i)
    peak = std::max(peak, held += problem.memory[sequence[i]]);
  return peak;
}

bool keeps_limits(const Problem& problem, const Sequence& sequence) {
  for (int r = 0; r < problem.ranks; ++r) {
    if (peak_of(problem, sequence, r) > problem.limit[at(r)]) return false;
  }
  return true;
}

namespace {

/// The tokens of one micro-batch on a rank, in the order that holds least.
void append_one(const Problem& problem, int rank, Sequence& sequence) {
  const auto& stages = problem.stages_of[at(rank)];
  for (const int s : stages) sequence.push_back(token_of(s, Forward));
  for (auto s = stages.rbegin(); s != stages.rend(); ++s) {
    sequence.push_back(token_of(*s, Input));
    const Token w = token_of(*s, Weight);
    if (problem.kinds == 3 && problem.memory[w] <= 0) sequence.push_back(w);
  }
  for (auto s = stages.rbegin(); s != stages.rend() && problem.kinds == 3; ++s) {
    const Token w = token_of(*s, Weight);
    if (problem.memory[w] > 0) sequence.push_back(w);
  }
}

}  // namespace

std::int64_t peak_of_one(const Problem& problem, int rank) {
  Sequence tokens;
  append_one(problem, rank, tokens);
  std::int64_t held = 0, peak = 0;
  for (const Token t : tokens) peak = std::max(peak, held += problem.memory[t]);
  return peak;
}

Sequence one_by_one(const Problem& problem) {
  Sequence sequence;
  sequence.reserve(problem.size());
  for (int r = 0; r < problem.ranks; ++r) {
    for (int k = 0; k < problem.micro_batches; ++k) append_one(problem, r, sequence);
  }
  return sequence;
}

}  // namespace pipewright::planner::synthesis
