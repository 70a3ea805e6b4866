// How fast the engine reads a Program that is already lowered, beside a hand-written loop that
// computes the same 1F1B finish times without any Program, in the same run. The engines of policies
// with queues, lowering and generating the order are timed beside it, and so is what making and
// simulating the Program held at most. Prints one row a case; medians of several runs.
//   sim_speed [largest number of actions, default 10000000]
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/channels.hpp"
#include "sim/dataflow.hpp"
#include "sim/durations.hpp"
#include "sim/queues.hpp"
#include "tests/bench/median.hpp"

namespace {
std::atomic<std::size_t> held{0}, most_held{0};
}

void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now = held += malloc_usable_size(memory);
  if (now > most_held) most_held = now;
  return memory;
}
void operator delete(void* memory) noexcept {
  held -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace pipewright {
namespace {

constexpr std::int64_t kForward = 10, kBackward = 25, kLatency = 1;

/// Finish times of 1F1B by hand: each rank goes through its warm-up, its pairs and its cool-down
/// until an input is missing, then the next rank has its turn. `forward` and `backward` are by rank
/// and micro-batch, -1 where not yet known.
std::int64_t loop_by_rank(std::int64_t p, std::int64_t m, std::vector<std::int64_t>& forward,
                          std::vector<std::int64_t>& backward, std::vector<std::int64_t>& clock) {
  std::fill(clock.begin(), clock.end(), 0);
  std::fill(forward.begin(), forward.end(), -1);
  std::fill(backward.begin(), backward.end(), -1);
  std::vector<std::int64_t> at(static_cast<std::size_t>(p), 0);  // by rank: actions done
  for (std::int64_t unfinished = p; unfinished > 0;) {
    for (std::int64_t r = 0; r < p; ++r) {
      const std::int64_t warm_up = std::min(p - 1 - r, m), pairs_end = warm_up + 2 * (m - warm_up);
      std::int64_t now = clock[static_cast<std::size_t>(r)], i = at[static_cast<std::size_t>(r)];
      if (i == 2 * m) continue;
      for (; i < 2 * m; ++i) {
        const bool is_forward = i < warm_up || (i < pairs_end && (i - warm_up) % 2 == 0);
        if (is_forward) {
          const std::int64_t k = i < warm_up ? i : warm_up + (i - warm_up) / 2;
          if (r > 0) {
            const std::int64_t input = forward[static_cast<std::size_t>((r - 1) * m + k)];
            if (input < 0) break;
            now = std::max(now, input + kLatency);
          }
          forward[static_cast<std::size_t>(r * m + k)] = now += kForward;
        } else {
          const std::int64_t k = i < pairs_end ? (i - warm_up) / 2 : i - m;
          if (r + 1 < p) {
            const std::int64_t input = backward[static_cast<std::size_t>((r + 1) * m + k)];
            if (input < 0) break;
            now = std::max(now, input + kLatency);
          }
          backward[static_cast<std::size_t>(r * m + k)] = now += kBackward;
        }
      }
      clock[static_cast<std::size_t>(r)] = now;
      at[static_cast<std::size_t>(r)] = i;
      if (i == 2 * m) --unfinished;
    }
  }
  return *std::max_element(clock.begin(), clock.end());
}

/// The same as one sweep: at step k rank r does forward k and backward k - (p-1-r), which depend on
/// steps k and k-1 alone. Finish times are laid out by step, so every access is to a neighbour and
/// the backwards vectorise. It holds for 1F1B only and shows how far a special case can go.
std::int64_t sweep(std::int64_t p, std::int64_t m, std::vector<std::int64_t>& forward,
                   std::vector<std::int64_t>& backward, std::vector<std::int64_t>& clock) {
  std::fill(clock.begin(), clock.end(), 0);
  std::int64_t* const now = clock.data();
  for (std::int64_t k = 0; k < m + p - 1; ++k) {
    std::int64_t* const f = forward.data() + k * p;
    std::int64_t* const b = backward.data() + k * p;
    if (k < m) {
      f[0] = now[0] += kForward;
      for (std::int64_t r = 1; r < p; ++r)
        f[r] = now[r] = std::max(now[r], f[r - 1] + kLatency) + kForward;
    }
    const std::int64_t first = std::max<std::int64_t>(0, p - 1 - k),
                       last = std::min<std::int64_t>(p, p + m - 1 - k);
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t arrived = r + 1 < p ? b[r + 1 - p] + kLatency : 0;
      b[r] = now[r] = std::max(now[r], arrived) + kBackward;
    }
  }
  return *std::max_element(clock.begin(), clock.end());
}

/// Seconds of the two engines of a policy with queues.
struct Queued {
  double walked = 0, by_events = 0;
};

Queued measure_queues(const Program& program, const CostTable& costs, int runs) {
  const sim::Durations durations(program, costs);
  Timeline walked;
  sim::Result by_events;
  const Queued seconds{
      median_seconds(runs, [&] { walked = *sim::run_queues(program, costs, durations); }),
      median_seconds(runs, [&] { by_events = sim::run_channels(program, costs, durations); })};
  if (walked.end != by_events.timeline.end) {
    std::fprintf(stderr, "sim_speed: the two engines of queues differ\n");
    std::exit(1);
  }
  return seconds;
}

/// By instruction, without the order: the most that is held while it is lowered and simulated.
double bytes_held(const Order& order, const CommPolicy& policy, const CostTable& costs) {
  const std::size_t before = held;
  most_held = before;
  const Program program = lower(order, policy);
  const sim::Result result = sim::simulate(program, costs);
  return static_cast<double>(most_held - before) / static_cast<double>(program.code.size());
}

void measure(const char* schedule, int p, int v, int m) {
  const double actions = 2.0 * p * v * m;
  const int runs = actions > 3e6 ? 3 : actions > 3e5 ? 7 : 25;
  Order order;
  const double generating = median_seconds(std::min(runs, 3), [&] {
    order = planner::make_order(schedule,
                                {.ranks = p, .micro_batches = m, .chunks = v, .parameters = {}});
  });
  const int few = std::min(runs, 3);
  const CommPolicy queued, ideal = comm_policy_preset("ideal");
  Program program, other;
  const double lowering = median_seconds(few, [&] { program = lower(order, ideal); });
  const Order written = with_transfers(order);
  const double of_written = median_seconds(few, [&] { other = lower(written, queued); });
  other = lower(order, queued);
  const CostTable costs = CostTable::uniform(p * v,
                                             {.f = Nanoseconds(kForward),
                                              .i = Nanoseconds(15),
                                              .w = Nanoseconds(10),
                                              .b = Nanoseconds(kBackward),
                                              .opt = {}},
                                             Nanoseconds(kLatency));
  const Queued with_queues = measure_queues(other, costs, few);
  other = {};
  const double bytes = bytes_held(order, ideal, costs),
               bytes_queued = bytes_held(order, queued, costs);
  order = {};
  const sim::Durations durations(program, costs);
  std::vector<std::int64_t> end;
  std::int64_t makespan = 0, expected = 0;
  const double engine =
      median_seconds(runs, [&] { makespan = sim::run_dataflow(program, durations, end); });
  // The loops are 1F1B's; interleaved is put beside the loops of as many actions.
  const std::int64_t steps = std::int64_t{v} * m + p;
  std::vector<std::int64_t> forward(static_cast<std::size_t>(p * steps)), backward(forward.size()),
      clock(static_cast<std::size_t>(p));
  const double by_rank = median_seconds(
      runs, [&] { expected = loop_by_rank(p, std::int64_t{v} * m, forward, backward, clock); });
  if (v == 1 && makespan != expected) {
    std::fprintf(stderr, "sim_speed: the engine says %lld ns, the loop %lld ns\n",
                 static_cast<long long>(makespan), static_cast<long long>(expected));
    std::exit(1);
  }
  const double by_sweep = median_seconds(
      runs, [&] { expected = sweep(p, std::int64_t{v} * m, forward, backward, clock); });
  const auto ns = [actions](double seconds) { return seconds / actions * 1e9; };
  std::printf(
      "%-12s %5d %2d %8d %9.0f %8.2f %8.2f %7.2f %8.2f %8.1f %8.1f %9.1f %8.1f %10.1f %6.1f "
      "%6.1f\n",
      schedule, p, v, m, actions, ns(by_rank), ns(engine), by_rank / engine, ns(by_sweep),
      ns(with_queues.walked), ns(with_queues.by_events), ns(lowering), ns(of_written),
      ns(generating), bytes, bytes_queued);
  std::fflush(stdout);
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  const double most = argc > 1 ? std::atof(argv[1]) : 1e7;
  std::printf(
      "ns per action with its transfers; ratio = loop / engine; bytes an instruction\n%-12s %5s "
      "%2s "
      "%8s %9s %8s %8s %7s %8s %8s %8s %9s %8s %10s %6s %6s\n",
      "schedule", "p", "v", "m", "actions", "loop", "engine", "ratio", "sweep", "queues", "events",
      "lowering", "written", "generating", "bytes", "queued");
  for (const double actions : {1e4, 1e5, 1e6, 1e7}) {
    if (actions > most) break;
    for (const int p : {8, 64, 256, 1024}) {
      const int m = static_cast<int>(actions / (2.0 * p));
      if (m >= 4) pipewright::measure("1f1b", p, 1, m);
      const int rounds = m / 2 / p;
      if (rounds >= 1) pipewright::measure("interleaved", p, 2, rounds * p);
    }
  }
  return 0;
}
