// What the flight recorder costs: the same steps with it and without it, in turns, in one run.
// Prints one row a case, with the fastest step of each kind.
//   flight_recorder [rounds of six steps, default 30]
#include "exec/runtime/flight_recorder.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright {
namespace {

using exec::local::ClockKind;

/// The fastest step in nanoseconds: what else runs on the machine only ever adds.
double fastest_step_ns(const Program& program, const CostTable& costs, int entries) {
  const exec::RunResult run =
      exec::paced::run_paced(program, costs, ClockKind::Wall,
                             {.steps = 6, .median_timeline = false, .flight_entries = entries});
  std::int64_t fastest = run.steps.front().step_ns;
  for (const exec::StepResult& step : run.steps) fastest = std::min(fastest, step.step_ns);
  return static_cast<double>(fastest);
}

void measure(int ranks, int micro_batches, std::int64_t action_ns, int rounds) {
  const Program program = lower(
      planner::make_order(
          "1f1b", {.ranks = ranks, .micro_batches = micro_batches, .chunks = 1, .parameters = {}}),
      CommPolicy{});
  const Nanoseconds time(action_ns);
  const CostTable costs = CostTable::uniform(
      program.stages, {.f = time, .i = time, .w = time, .b = time, .opt = {}}, Nanoseconds(0));
  double off = 1e18, on = 1e18;
  for (int round = 0; round < rounds; ++round) {
    off = std::min(off, fastest_step_ns(program, costs, 0));
    on = std::min(on, fastest_step_ns(program, costs, exec::kDefaultFlightEntries));
  }
  const double actions = 2.0 * micro_batches;  // of a rank
  std::printf("%5d %6d %11.0f %12.1f %12.1f %12.0f %12.3f\n", ranks, micro_batches,
              static_cast<double>(action_ns) / 1e3, off / 1e3, on / 1e3, (on - off) / actions,
              100 * (on - off) / off);
  std::fflush(stdout);
}

/// Without anything around it.
void measure_entry() {
  constexpr int kEntries = 10'000'000;
  exec::FlightRecorder recorder(exec::kDefaultFlightEntries);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kEntries; ++i)
    recorder.note({static_cast<InstructionId>(i), exec::FlightState::Started, kNoInstruction, i});
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  std::printf("one entry, its clock not counted: %.2f ns\n", took.count() / kEntries);
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  using namespace pipewright;
  const int rounds = std::max(1, argc > 1 ? std::atoi(argv[1]) : 30);
  measure_entry();
  std::printf("1f1b, paced; us; what the recorder adds: ns an action, percent of the step\n");
  std::printf("%5s %6s %11s %12s %12s %12s %12s\n", "ranks", "m", "action", "step off", "step on",
              "ns/action", "percent");
  for (const std::int64_t action_ns : {0, 20'000, 100'000, 1'000'000}) {
    measure(2, action_ns >= 1'000'000 ? 16 : 64, action_ns, rounds);
  }
  return 0;
}
