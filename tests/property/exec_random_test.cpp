// Random Programs under random policies on real threads: what the executor does under the virtual
// clock is what the simulator says, to the nanosecond; what the simulator calls stuck really hangs,
// at the same place, and the watchdog names the cycle that check names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "sim/engine.hpp"
#include "tests/support/random_program.hpp"

namespace pipewright::tests {
namespace exec_random_test {

constexpr std::uint64_t kCallSeeds = 1'000'000, kPartSeeds = 2'000'000, kShardingSeeds = 3'000'000;

std::string difference_of(const Program& program, const Timeline& sim, const Timeline& exec) {
  std::string text;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const auto one = [&](const char* what, std::int64_t a, std::int64_t b) {
      if (a == b) return;
      text += std::to_string(program.rank_of(id).value) + " " + program.text(id) + " " + what +
              ": sim " + std::to_string(a) + ", exec " + std::to_string(b) + "\n";
    };
    one("start", sim.start[id], exec.start[id]);
    one("moving", sim.moving[id], exec.moving[id]);
    one("end", sim.end[id], exec.end[id]);
  }
  return text;
}

std::string shown_lists(const Program& program) {
  std::string text;
  for (int r = 0; r < program.ranks(); ++r) {
    text += "rank " + std::to_string(r) + ":";
    const std::size_t rank = static_cast<std::size_t>(r);
    for (InstructionId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
      text += " " + program.text(id);
    }
    text += "\n";
  }
  return text;
}

/// PIPEWRIGHT_EXEC_SEEDS=from:to asks for others than those of every run.
std::pair<std::uint64_t, std::uint64_t> seeds(std::uint64_t from, std::uint64_t to) {
  const char* wanted = std::getenv("PIPEWRIGHT_EXEC_SEEDS");
  if (wanted == nullptr) return {from, to};
  const std::string text = wanted;
  return {std::stoull(text), std::stoull(text.substr(text.find(':') + 1))};
}

TEST(ExecRandom, VirtualTimelineIsTheSimulators) {
  const auto [from, to] = seeds(0, 1500);
  int finished = 0, stuck = 0, disagreements = 0, met = 0, updated_inside = 0, called = 0;
  for (std::uint64_t seed = from; seed < to && disagreements < 3; ++seed) {
    Case c = random_case(seed);
    add_calls_to_some(reference::Dice(seed + kCallSeeds), c);
    add_parts_to_some(reference::Dice(seed + kPartSeeds), c);
    add_sharding_to_some(reference::Dice(seed + kShardingSeeds), c);
    if (!is_usable(c)) continue;
    const Program program = program_of(c);
    const CostTable costs = costs_of(c);
    const sim::Result predicted = sim::simulate(program, costs);
    const exec::RunResult run =
        exec::paced::run_paced(program, costs, exec::local::ClockKind::Virtual);
    ++(run.finished() ? finished : stuck);
    if (run.finished() && program.has_collectives()) ++met;
    if (run.finished() && program.asynchronous) ++updated_inside;
    if (run.finished() && !program.calls.empty()) ++called;
    std::string wrong;
    if (run.finished() != predicted.finished) wrong = "one of them finishes, the other does not\n";
    if (run.finished()) {
      EXPECT_EQ(run.timeline.makespan_ns, predicted.timeline.makespan_ns);
    } else {
      const std::string watchdog = text_of(program, run.stuck);
      const std::string check = text_of(program, sim::check(program, costs));
      if (watchdog != check) wrong += "watchdog:\n" + watchdog + "check:\n" + check;
    }
    wrong += difference_of(program, predicted.timeline, run.timeline);
    if (wrong.empty()) continue;
    ++disagreements;
    ADD_FAILURE() << "seed " << seed << "\n" << shown(c) << shown_lists(program) << wrong;
  }
  // Neither kind may die out.
  if (to - from >= 1000) {
    EXPECT_GT(finished, 100);
    EXPECT_GT(stuck, 100);
    EXPECT_GT(met, 10);
    EXPECT_GT(updated_inside, 50);
    EXPECT_GT(called, 50);
  }
}

/// Found among 100,000: the simulator let a norm begin while its compute lane stood in front of a
/// transfer without a place in flight.
TEST(ExecRandom, ANormStandsBehindWhatHasNoPlaceInFlight) {
  for (const std::uint64_t seed : {65382U, 70000U, 81528U}) {
    const Case c = random_case(seed);
    ASSERT_GT(c.policy.in_flight, 0) << "the random orders have changed: find such a case anew";
    const Program program = program_of(c);
    const sim::Result predicted = sim::simulate(program, costs_of(c));
    const exec::RunResult run =
        exec::paced::run_paced(program, costs_of(c), exec::local::ClockKind::Virtual);
    EXPECT_EQ(difference_of(program, predicted.timeline, run.timeline), "") << "seed " << seed;
  }
}

TEST(ExecRandom, WallClockRunsStandWhereCheckSaysTheyDo) {
  // Durations of nanoseconds: the threads race, and the outcome may not depend on it.
  const auto [from, to] = seeds(5000, 5300);
  int disagreements = 0;
  for (std::uint64_t seed = from; seed < to && disagreements < 3; ++seed) {
    Case c = random_case(seed);
    add_calls_to_some(reference::Dice(seed + kCallSeeds), c);
    add_parts_to_some(reference::Dice(seed + kPartSeeds), c);
    add_sharding_to_some(reference::Dice(seed + kShardingSeeds), c);
    if (!is_usable(c)) continue;
    const Program program = program_of(c);
    const CostTable costs = costs_of(c);
    const exec::RunResult run =
        exec::paced::run_paced(program, costs, exec::local::ClockKind::Wall, {.steps = 2});
    const std::string watchdog = text_of(program, run.stuck);
    const std::string check = text_of(program, sim::check(program, costs));
    EXPECT_EQ(run.finished() ? run.steps.size() : 2, 2U);
    if (watchdog == check) continue;
    ++disagreements;
    ADD_FAILURE() << "seed " << seed << "\n"
                  << shown(c) << shown_lists(program) << "watchdog:\n"
                  << watchdog << "check:\n"
                  << check;
  }
}

}  // namespace exec_random_test
}  // namespace pipewright::tests
