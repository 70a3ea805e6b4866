// What the runtime adds to what it runs, on the wall clock with two ranks. Three tables:
//   path    a training step's time over the critical path of its own measured computations
//   action  the time of a step of paced actions of no length, by action of a rank
//   hop     the time from the end of a computation to the start of the one on the other rank that
//           waits for its message, beside bare words in memory that two threads pass to and fro
// Each row gives the median and the best of its rounds: what else runs on the machine only adds.
//   runtime_overhead [rounds, default 9] [path|action|hop, default all]
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "exec/base/waiting.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/paced/device.hpp"
#include "sim/engine.hpp"
#include "tests/bench/study_models.hpp"

namespace pipewright::bench {
namespace {

using exec::local::ClockKind;

struct Figure {
  double median = 0, best = 0;
};

template <class Once>
Figure over_rounds(int rounds, Once once) {
  std::vector<double> found;
  for (int k = 0; k < rounds; ++k) found.push_back(once());
  std::sort(found.begin(), found.end());
  return {found[found.size() / 2], found.front()};
}

// --- path ---

/// The step's time, transfers free, if nothing but the computations and their order counted.
double critical_path_ns(const Program& program, const Timeline& timeline) {
  std::vector<std::int64_t> durations;
  for (std::size_t id = 0; id < timeline.end.size(); ++id)
    durations.push_back(timeline.end[id] - timeline.start[id]);
  const CostTable free = CostTable::uniform(program.stages, {});
  return static_cast<double>(
      sim::simulate(program, free, {.compute_ns = durations}).timeline.makespan_ns);
}

double path_ratio(const Model& model, const char* schedule, int micro_batch_size) {
  const Program program = training_program(schedule, 2, 8, 1);
  const auto data =
      exec::make_data(model, {.samples = micro_batch_size, .micro_batches = 8, .seed = 1},
                      PIPEWRIGHT_SOURCE_DIR "/LICENSE");
  exec::cpu::Training training;
  training.model = &model;
  training.stages = partition(model, program, 0);
  training.micro_batch_size = micro_batch_size;
  training.micro_batches = 8;
  training.data = data.get();
  const auto run = exec::cpu::run_on_cpu(program, CostTable::uniform(program.stages, {}), training,
                                         {.steps = 6});
  return static_cast<double>(run.timeline.makespan_ns) / critical_path_ns(program, run.timeline);
}

void print_paths(int rounds) {
  std::printf("step over the critical path of its own actions, pp 2, m 8\n");
  const Model model = gpt(8);
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const Figure found = over_rounds(rounds, [&] { return path_ratio(model, schedule, 2); });
    std::printf("  %-8s %-8s median %.4f   best %.4f\n", model.name.c_str(), schedule, found.median,
                found.best);
    std::fflush(stdout);
  }
}

// --- action ---

double ns_per_action(const Program& program, ClockKind clock) {
  const CostTable free = CostTable::uniform(program.stages, {});
  const exec::RunResult run =
      exec::paced::run_paced(program, free, clock, {.steps = 6, .median_timeline = false});
  std::int64_t fastest = run.steps.back().step_ns;
  for (const exec::StepResult& step : run.steps) fastest = std::min(fastest, step.step_ns);
  std::size_t actions = 0;
  for (InstructionId id = program.rank_begin[0]; id < program.rank_begin[1]; ++id)
    actions += is_transfer(program.code[id].kind) ? 0 : 1;
  return static_cast<double>(fastest) / static_cast<double>(actions);
}

void print_actions(int rounds) {
  std::printf("ns an action of no length, with its transfers, pp 2, m 256\n");
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const Program program = training_program(schedule, 2, 256, 1);
    const Figure found =
        over_rounds(rounds, [&] { return ns_per_action(program, ClockKind::Wall); });
    std::printf("  %-17s median %6.0f   best %6.0f\n", schedule, found.median, found.best);
    std::fflush(stdout);
  }
}

// --- hop ---

constexpr int kHops = 512;

/// One micro-batch goes to and fro between two ranks.
double ns_per_hop() {
  Order order;
  order.placement = Placement::loop(2, kHops / 2);
  order.micro_batches = 1;
  order.ranks.resize(2);
  for (int s = 0; s < kHops; ++s) {
    order.ranks[static_cast<std::size_t>(s % 2)].push_back(
        {.action = {.kind = ActionKind::F, .stage = StageId(s), .micro_batch = {}}, .partner = {}});
  }
  const Program program = lower(order, CommPolicy{});
  const CostTable free = CostTable::uniform(program.stages, {});
  const exec::RunResult run = exec::paced::run_paced(program, free, ClockKind::Wall,
                                                     {.steps = 6, .median_timeline = false});
  std::int64_t fastest = run.steps.back().step_ns;
  for (const exec::StepResult& step : run.steps) fastest = std::min(fastest, step.step_ns);
  return static_cast<double>(fastest) / (kHops - 1);
}

/// Two threads and a word: nothing can hand over faster. Spins as the transport does, then yields.
double ns_per_bare_hop() {
  constexpr int kBareHops = 200'000;
  std::atomic<int> turn{0};
  const auto player = [&](int parity) {
    for (int k = parity; k < kBareHops; k += 2) {
      for (int spins = 0; turn.load(std::memory_order_acquire) != k; ++spins) {
        if (spins < 20) {
          exec::local::pause_core();
        } else {
          std::this_thread::yield();
        }
      }
      turn.store(k + 1, std::memory_order_release);
    }
  };
  const std::int64_t begin = exec::local::steady_ns();
  {
    const std::jthread other([&] { player(1); });
    player(0);
  }
  return static_cast<double>(exec::local::steady_ns() - begin) / kBareHops;
}

void print_hops(int rounds) {
  std::printf("ns a hop between two ranks\n");
  const Figure bare = over_rounds(rounds, ns_per_bare_hop);
  std::printf("  %-17s median %6.0f   best %6.0f\n", "a word, bare", bare.median, bare.best);
  const Figure hop = over_rounds(rounds, ns_per_hop);
  std::printf("  %-17s median %6.0f   best %6.0f\n", "an activation", hop.median, hop.best);
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  const int rounds = std::max(1, argc > 1 ? std::atoi(argv[1]) : 9);
  const std::string table = argc > 2 ? argv[2] : "all";
  if (table == "action" || table == "all") pipewright::bench::print_actions(rounds);
  if (table == "hop" || table == "all") pipewright::bench::print_hops(rounds);
  if (table == "path" || table == "all") pipewright::bench::print_paths(rounds);
  return 0;
}
