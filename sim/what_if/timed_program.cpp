#include "sim/what_if/timed_program.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/int128.hpp"
#include "core/costs/time_rules.hpp"

namespace pipewright::sim {
namespace {

bool same_cell(const Cell& a, const Cell& b) {
  if (!same_action(a.action, b.action) || a.partner.has_value() != b.partner.has_value())
    return false;
  return !a.partner || same_action(*a.partner, *b.partner);
}

std::string no_such(const std::string& what, int number, int count) {
  return "there is no " + what + " " + std::to_string(number) + "; they are 0 to " +
         std::to_string(count - 1);
}

}  // namespace

int number_of(WhatOf of, const TimedAction& action) {
  const Action& it = action.cell.action;
  if (of == WhatOf::Rank) return action.rank.value;
  if (action.is_pair()) return -1;
  if (of == WhatOf::Stage) return has_stage(it.kind) ? it.stage.value : -1;
  return has_micro_batch(it.kind) ? it.micro_batch.value : -1;
}

bool concerns(const Change& change, const TimedAction& action) {
  const Action& it = action.cell.action;
  switch (change.of) {
    case WhatOf::Kind:
      return !action.is_pair() && it.kind == change.kind;
    case WhatOf::Pairs:
      return action.is_pair();
    case WhatOf::Rank:
    case WhatOf::Stage:
    case WhatOf::MicroBatch:
      return number_of(change.of, action) == change.number;
    case WhatOf::Action:
      return same_cell(action.cell, change.action);
    default:
      return false;
  }
}

bool concerns(const Change& change, const Route& route) {
  if (change.of == WhatOf::Messages) return true;
  return change.of == WhatOf::Link && route.source.value == change.number &&
         route.destination.value == change.to;
}

TimedProgram::TimedProgram(const Program& program, const CostTable& costs)
    : program_(program), costs_(costs), of_(program.code.size()) {
  const Durations durations(program, costs);
  times_.collectives_ns = durations.collective_ns();
  times_.messages.resize(program.routes.size());
  messages_take_time_ = std::any_of(durations.route_ns().begin(), durations.route_ns().end(),
                                    [](std::int64_t ns) { return ns > 0; });
  for (int r = 0; r < program.ranks(); ++r) {
    rank_ = RankId(r);
    const auto row = static_cast<std::size_t>(r);
    for (InstructionId id = program.rank_begin[row]; id < program.rank_begin[row + 1]; ++id) {
      if (program.code[id].kind == ActionKind::Opt) {
        of_[id].first = add(program.cell(id), rank_, Nanoseconds(durations.compute(id)));
      } else {
        add_instruction(id);
      }
    }
  }
}

std::uint32_t TimedProgram::add(const Cell& cell, RankId rank, Nanoseconds time) {
  actions_.push_back({cell, rank});
  times_.actions_ns.push_back(time.value);
  return static_cast<std::uint32_t>(actions_.size() - 1);
}

void TimedProgram::add_instruction(InstructionId id) {
  const Instruction& in = program_.code[id];
  if (in.kind == ActionKind::Part) {
    of_[id].first = add_part(id);
    return;
  }
  if (!is_compute(in.kind)) return;
  if (!program_.part_of.empty() && program_.ends_parts(id)) {  // it takes no time itself
    open_.clear();
    return;
  }
  const Cell cell = program_.cell(id);
  if (!cell.partner) {
    of_[id].first = add(cell, rank_, costs_.compute_time(cell.action));
  } else if (const auto own = own_pair_time(costs_, cell.action, *cell.partner)) {
    of_[id].first = add(cell, rank_, *own);
  } else {
    of_[id].first = add({cell.action, std::nullopt}, rank_, costs_.compute_time(cell.action));
    of_[id].second = add({*cell.partner, std::nullopt}, rank_, costs_.compute_time(*cell.partner));
  }
}

std::uint32_t TimedProgram::add_part(InstructionId id) {
  const Action& action = *program_.action_of_part(id);
  for (const std::uint32_t open : open_) {
    if (same_action(actions_[open].cell.action, action)) return open;
  }
  open_.push_back(add({action, std::nullopt}, rank_, costs_.compute_time(action)));
  return open_.back();
}

template <class Visit>
void TimedProgram::for_each_of(const Change& change, Visit visit) const {
  for (std::size_t a = 0; a < actions_.size(); ++a) {
    if (concerns(change, actions_[a])) visit(a);
  }
}

std::vector<traces::PlacedTime> TimedProgram::placed_times(std::span<const std::int64_t> ns) const {
  std::vector<traces::PlacedTime> placed;
  placed.reserve(actions_.size());
  for (std::size_t a = 0; a < actions_.size(); ++a) {
    const TimedAction& it = actions_[a];
    const Action& action = it.cell.action;
    const bool has_one_stage = !it.is_pair() && has_stage(action.kind);
    placed.push_back({.kind = it.is_pair() ? kActionKinds : static_cast<int>(action.kind),
                      .stage = has_one_stage ? action.stage.value : traces::PlacedTime::kNoStage,
                      .rank = it.rank.value,
                      .ns = ns[a]});
  }
  return placed;
}

std::string TimedProgram::fault_of(const Change& change) const {
  switch (change.of) {
    case WhatOf::Messages:
      return program_.routes.empty() ? "there are no messages" : "";
    case WhatOf::Collectives:
      return program_.collectives.empty() ? "there are no collectives" : "";
    case WhatOf::Stages:
    case WhatOf::MicroBatches:
      return "";
    case WhatOf::Link: {
      const auto& routes = program_.routes;
      if (std::any_of(routes.begin(), routes.end(),
                      [&](const Route& route) { return concerns(change, route); }))
        return "";
      return "no message goes from rank " + std::to_string(change.number) + " to rank " +
             std::to_string(change.to);
    }
    default:
      break;
  }
  if (change.of == WhatOf::Rank && change.number >= program_.ranks())
    return no_such("rank", change.number, program_.ranks());
  if (change.of == WhatOf::Stage && change.number >= program_.stages)
    return no_such("stage", change.number, program_.stages);
  if (change.of == WhatOf::MicroBatch && change.number >= program_.micro_batches)
    return no_such("micro-batch", change.number, program_.micro_batches);
  const bool any = std::any_of(actions_.begin(), actions_.end(),
                               [&](const TimedAction& action) { return concerns(change, action); });
  if (any) return "";
  if (change.of == WhatOf::Pairs) return "there are no overlapped pairs with a time of their own";
  if (change.of == WhatOf::Action)
    return "nothing computes " + pipewright::to_string(change.action) + " by itself";
  if (change.of == WhatOf::Kind)
    return "nothing computes " + std::string(pipewright::to_string(change.kind)) + " by itself";
  return "there is nothing of it that has a time of its own";
}

void TimedProgram::apply(const Change& change, Times& times) const {
  if (change.becomes == Becomes::Mean) return even_out(change.of, times);
  if (change.becomes == Becomes::Median) {
    const std::vector<traces::PlacedTime> placed = placed_times(times.actions_ns);
    const traces::MedianElsewhere medians(placed);
    for_each_of(change, [&](std::size_t a) {
      if (const auto median = medians.of(a))
        times.actions_ns[a] = std::min(times.actions_ns[a], *median);
    });
    return;
  }
  if (change.of == WhatOf::Collectives) {
    for (std::int64_t& ns : times.collectives_ns) ns = scaled(ns, change.factor);
    return;
  }
  for (std::size_t r = 0; r < program_.routes.size(); ++r) {
    if (concerns(change, program_.routes[r]))
      times.messages[r] = product(times.messages[r], change.factor);
  }
  for_each_of(change, [&](std::size_t a) {
    times.actions_ns[a] = scaled(times.actions_ns[a], change.factor);
  });
}

/// Each takes the mean of those that differ from it in their stage, or in their micro-batch, alone;
/// halves are rounded up.
void TimedProgram::even_out(WhatOf of, Times& times) const {
  struct Sum {
    Int128 ns = 0;
    std::int64_t count = 0;
  };
  const auto key_of = [&](const TimedAction& action) {
    const Action& it = action.cell.action;
    if (action.is_pair()) return std::tuple(kActionKinds, 0);
    const int rest = of == WhatOf::Stages ? it.micro_batch.value : it.stage.value;
    return std::tuple(static_cast<int>(it.kind), it.kind == ActionKind::Opt ? 0 : rest);
  };
  std::map<std::tuple<int, int>, Sum> sums;
  for (std::size_t a = 0; a < actions_.size(); ++a) {
    Sum& sum = sums[key_of(actions_[a])];
    sum.ns += times.actions_ns[a];
    ++sum.count;
  }
  for (std::size_t a = 0; a < actions_.size(); ++a) {
    if (of == WhatOf::MicroBatches && actions_[a].cell.action.kind == ActionKind::Opt) continue;
    const Sum& sum = sums[key_of(actions_[a])];
    times.actions_ns[a] = static_cast<std::int64_t>((2 * sum.ns + sum.count) / (2 * sum.count));
  }
}

Result TimedProgram::simulate(const Times& times) const {
  std::vector<std::int64_t> compute_ns(program_.code.size(), 0);
  for (InstructionId id = 0; id < compute_ns.size(); ++id) {
    const auto [first, second] = of_[id];
    if (first == kNone) continue;
    const std::int64_t ns = times.actions_ns[first];
    const Instruction& in = program_.code[id];
    if (in.kind == ActionKind::Part) {
      compute_ns[id] = part_time(program_.work(in), Nanoseconds(ns)).value;
    } else {
      compute_ns[id] = second == kNone ? ns : ns + times.actions_ns[second];
    }
  }
  return sim::simulate(program_, costs_,
                       {.compute_ns = compute_ns,
                        .collective_ns = times.collectives_ns,
                        .messages = times.messages});
}

}  // namespace pipewright::sim
