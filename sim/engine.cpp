#include "sim/engine.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/large_pages.hpp"
#include "sim/channels.hpp"
#include "sim/dataflow.hpp"
#include "sim/durations.hpp"
#include "sim/queues.hpp"

namespace pipewright::sim {
namespace {

bool needs_no_queues(const Program& program, const CostTable& costs) {
  return program.policy.is_free_of_waits() && !program.has_collectives() && program.calls.empty() &&
         !costs.has_shared_links();
}

/// Starts and moves follow from the ends: receives were posted at 0, sends left when they were
/// issued.
Result from_ends(const Program& program, const Durations& durations,
                 std::vector<std::int64_t> end) {
  Result result;
  const std::size_t n = program.code.size();
  Timeline& timeline = result.timeline;
  timeline.end = std::move(end);
  assign_in_large_pages(timeline.start, n, kNotEnded);
  assign_in_large_pages(timeline.moving, n, kNotEnded);
  result.finished = true;
  for (InstructionId id = 0; id < n; ++id) {
    const std::int64_t ended = timeline.end[id];
    if (ended == kNotEnded) {
      result.finished = false;
      if (is_recv(program.code[id].kind)) timeline.start[id] = 0;
      continue;
    }
    timeline.makespan_ns = std::max(timeline.makespan_ns, ended);
    const Instruction& in = program.code[id];
    if (is_recv(in.kind)) {
      timeline.start[id] = 0;
      timeline.moving[id] = ended - durations.route_ns()[program.code[in.link].route];
    } else {
      timeline.start[id] = is_send(in.kind) ? ended : ended - durations.compute(id);
      timeline.moving[id] = timeline.start[id];
    }
  }
  if (!result.finished) {
    for (InstructionId id = 0; id < n; ++id) {
      result.progress.ended.push_back(timeline.end[id] != kNotEnded);
      result.progress.left.push_back(is_send(program.code[id].kind) &&
                                     timeline.end[id] != kNotEnded);
    }
  }
  return result;
}

Result simulate_with(const Program& program, const CostTable& costs, const Durations& durations,
                     const Pulse& pulse) {
  if (!needs_no_queues(program, costs)) {
    if (auto timeline = run_queues(program, costs, durations, pulse)) {
      Result result;
      result.finished = true;
      result.timeline = *std::move(timeline);
      return result;
    }
    return run_channels(program, costs, durations, pulse);
  }
  std::vector<std::int64_t> end;
  run_dataflow(program, durations, end, pulse);
  return from_ends(program, durations, std::move(end));
}

}  // namespace

Result simulate(const Program& program, const CostTable& costs, const Pulse& pulse) {
  return simulate_with(program, costs, Durations(program, costs), pulse);
}

Result simulate(const Program& program, const CostTable& costs, const OwnTimes& own) {
  const auto fits = [](const auto& times, const auto& of) {
    return times.empty() || times.size() == of.size();
  };
  PIPEWRIGHT_ASSERT(fits(own.compute_ns, program.code) &&
                        fits(own.collective_ns, program.collectives) &&
                        fits(own.messages, program.routes),
                    "a time for each");
  return simulate_with(program, costs, Durations(program, costs, own), {});
}

WaitReport check(const Program& program, const CostTable& costs, const Pulse& pulse) {
  const Result result = simulate(program, costs, pulse);
  if (result.finished) return {};
  return explain_stuck(program, result.progress, costs.message_bytes(program));
}

}  // namespace pipewright::sim
