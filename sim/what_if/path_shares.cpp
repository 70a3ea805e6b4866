#include "sim/what_if/path_shares.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace pipewright::sim {
namespace {

/// Calls `of_action(action, ns)`, `of_route(route, ns)` and `of_collective(ns)` for what is on the
/// path, by time.
template <class OfAction, class OfRoute, class OfCollective>
void for_each_share(const TimedProgram& program, std::span<const traces::PathStep> path,
                    OfAction of_action, OfRoute of_route, OfCollective of_collective) {
  for (const traces::PathStep& step : path) {
    const std::int64_t ns = step.end_ns - step.start_ns;
    if (step.kind == traces::PathKind::Message) {
      of_route(program.program().routes[program.program().code[step.instruction].route], ns);
    } else if (step.kind == traces::PathKind::Collective) {
      of_collective(ns);
    } else if (step.kind == traces::PathKind::Compute) {
      const auto [first, second] = program.actions_of(step.instruction);
      for (const std::uint32_t action : {first, second}) {
        if (action != TimedProgram::kNone)
          of_action(action, std::min(ns, program.times().actions_ns[action]));
      }
    }
  }
}

/// Sums by what changes, in the order in which it is first met.
class Sums {
 public:
  void add(std::pair<int, int> key, const Change& change, std::int64_t ns) {
    const auto [found, is_new] = at_.emplace(key, sums_.size());
    if (is_new) sums_.push_back({.change = change});
    sums_[found->second].ns += ns;
    sums_[found->second].shorter_ns += ns - scaled(ns, change.factor);
  }

  std::vector<OnPath> longest_first() && {
    std::stable_sort(sums_.begin(), sums_.end(),
                     [](const OnPath& a, const OnPath& b) { return a.ns > b.ns; });
    return std::move(sums_);
  }

 private:
  std::map<std::pair<int, int>, std::size_t> at_;
  std::vector<OnPath> sums_;
};

}  // namespace

std::vector<OnPath> on_path(WhatOf of, const TimedProgram& program,
                            std::span<const traces::PathStep> path) {
  Sums sums;
  const auto of_action = [&](std::uint32_t a, std::int64_t ns) {
    const TimedAction& action = program.actions()[a];
    Change change{.of = of, .factor = kTenthFaster};
    if (of == WhatOf::Action) {
      if (action.cell.action.kind == ActionKind::Opt) return;
      change.action = action.cell;
      return sums.add({static_cast<int>(a), 0}, change, ns);
    }
    change.number = number_of(of, action);
    if (of != WhatOf::Link && change.number >= 0) sums.add({change.number, 0}, change, ns);
  };
  const auto of_route = [&](const Route& route, std::int64_t ns) {
    if (of != WhatOf::Link) return;
    const Change change{.of = of,
                        .factor = kTenthFaster,
                        .number = route.source.value,
                        .to = route.destination.value};
    sums.add({change.number, change.to}, change, ns);
  };
  for_each_share(program, path, of_action, of_route, [](std::int64_t) {});
  return std::move(sums).longest_first();
}

std::int64_t time_on_path(std::span<const Change> changes, const TimedProgram& program,
                          std::span<const traces::PathStep> path) {
  std::int64_t sum = 0;
  const auto add_if_any = [&](std::int64_t ns, auto is_changed_by) {
    if (std::any_of(changes.begin(), changes.end(), is_changed_by)) sum += ns;
  };
  for_each_share(
      program, path,
      [&](std::uint32_t a, std::int64_t ns) {
        add_if_any(ns, [&](const Change& change) {
          return change.becomes == Becomes::Mean || concerns(change, program.actions()[a]);
        });
      },
      [&](const Route& route, std::int64_t ns) {
        add_if_any(ns, [&](const Change& change) { return concerns(change, route); });
      },
      [&](std::int64_t ns) {
        add_if_any(ns, [](const Change& change) { return change.of == WhatOf::Collectives; });
      });
  return sum;
}

}  // namespace pipewright::sim
