// Random Programs on the transport between processes, with threads in the place of processes and
// frames that overtake one another: what check calls stuck really hangs, at the same place, and
// process 0 names the cycle that check names; everything else finishes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "exec/devices/paced/device.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "exec/transports/process/link.hpp"
#include "exec/transports/process/transport.hpp"
#include "sim/engine.hpp"
#include "tests/support/memory_wire.hpp"
#include "tests/support/random_program.hpp"

namespace pipewright::tests {
namespace processes_random_test {

using exec::RunResult;

/// Each process's result; those that fail have none.
std::vector<RunResult> run_everywhere(const Program& program, const CostTable& costs,
                                      test::MemoryHub& hub, exec::RunOptions options) {
  std::vector<RunResult> results(static_cast<std::size_t>(program.ranks()));
  std::vector<std::jthread> processes;
  for (int p = 0; p < program.ranks(); ++p) {
    processes.emplace_back([&, p] {
      exec::mpi::Link link(std::make_unique<test::MemoryWire>(hub, p));
      auto& result = results[static_cast<std::size_t>(p)];
      {
        exec::mpi::MpiTransport transport(program, exec::local::paced_messages(program, costs),
                                          link);
        try {
          result = exec::paced::run_paced(program, costs, options, transport);
        } catch (const exec::RunFailed& failed) {
          result = failed.result();
        }
      }
      EXPECT_TRUE(link.close());
    });
  }
  processes.clear();
  return results;
}

/// Frames of one gathering may overtake those of the one before.
TEST(Processes, GatherEverybodysTextsAgainAndAgain) {
  constexpr int kProcesses = 4, kTimes = 50;
  test::MemoryHub hub(kProcesses, true, 7);
  std::vector<std::jthread> processes;
  for (int p = 0; p < kProcesses; ++p) {
    processes.emplace_back([&, p] {
      exec::mpi::Link link(std::make_unique<test::MemoryWire>(hub, p));
      for (int t = 0; t < kTimes; ++t) {
        const auto text = [t](int of) {
          return std::string(static_cast<std::size_t>(of * t), 'x') + std::to_string(t);
        };
        const auto texts = exec::mpi::all_gather(link, text(p));
        ASSERT_EQ(texts.size(), static_cast<std::size_t>(kProcesses));
        for (int of = 0; of < kProcesses; ++of)
          EXPECT_EQ(texts[static_cast<std::size_t>(of)], text(of));
      }
      EXPECT_TRUE(link.close());
    });
  }
}

TEST(Processes, StandWhereCheckSaysTheyDo) {
  const char* wanted = std::getenv("PIPEWRIGHT_PROCESS_SEEDS");
  const std::uint64_t count = wanted == nullptr ? 150 : std::stoull(wanted);
  int finished = 0, stuck = 0, disagreements = 0, met = 0;
  for (std::uint64_t seed = 9000; seed < 9000 + count && disagreements < 3; ++seed) {
    Case c = random_case(seed);
    add_calls_to_some(reference::Dice(seed + 1'000'000), c);
    add_parts_to_some(reference::Dice(seed + 2'000'000), c);
    add_sharding_to_some(reference::Dice(seed + 3'000'000), c);
    if (!is_usable(c)) continue;
    const Program program = program_of(c);
    const CostTable costs = costs_of(c);
    test::MemoryHub hub(program.ranks(), true, seed);
    const auto results = run_everywhere(program, costs, hub, {.steps = 2});
    const RunResult& first = results.front();
    ++(first.finished() ? finished : stuck);
    if (first.finished() && program.has_collectives()) ++met;
    for (const RunResult& other : results) EXPECT_EQ(other.finished(), first.finished());
    EXPECT_EQ(first.steps.size(), first.finished() ? 2U : 0U);
    const std::string watchdog = text_of(program, first.stuck);
    const std::string check = text_of(program, sim::check(program, costs));
    if (watchdog == check) continue;
    ++disagreements;
    ADD_FAILURE() << "seed " << seed << "\n"
                  << shown(c) << to_string(first.outcome) << first.failure << "\nwatchdog:\n"
                  << watchdog << "check:\n"
                  << check;
  }
  EXPECT_GT(finished, 10);
  EXPECT_GT(stuck, 10);
  EXPECT_GT(met, 1);
}

}  // namespace processes_random_test
}  // namespace pipewright::tests
