// What figures of a step cost for 10^3 to 10^9 micro-batches: from the steady state, and the long
// way as far as that is reasonable. Prints one row a size; milliseconds are medians of CPU time,
// memory is the largest that the process has held so far, and the two ways have to agree.
//   period_speed [largest number of micro-batches, default 1000000000]
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/program/lower.hpp"
#include "planner/plans/long_step.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace {

constexpr double kMostActionsOfLongWay = 2e7;

double mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Of three.
double median_cpu_seconds(const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) {
    const double begin = cpu_seconds();
    body();
    seconds.push_back(cpu_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[1];
}

struct Setting {
  const planner::Schedule& schedule;
  planner::ScheduleRequest request;
  CostTable costs;
  CommPolicy policy;

  double actions() const {
    return 2.0 * request.ranks * request.chunks * static_cast<double>(request.micro_batches);
  }
};

Figures long_way(const Setting& setting) {
  const Program program = lower(setting.schedule.make(setting.request), setting.policy);
  return figures_of(program, sim::simulate(program, setting.costs).timeline, setting.costs);
}

/// By schedule and sizes, of the way that came first.
std::map<std::string, std::int64_t> makespans;

void row(const Setting& setting, bool whole) {
  planner::LongStepAnswer answer;
  Figures figures;
  const double seconds = median_cpu_seconds([&] {
    if (whole) {
      figures = long_way(setting);
    } else {
      answer =
          planner::long_step(setting.schedule, setting.request, setting.costs, setting.policy, {});
    }
  });
  if (!whole && !answer.step) {
    std::printf("%-12s %4d %12d %s\n", setting.schedule.name.data(), setting.request.ranks,
                setting.request.micro_batches, answer.why_not.c_str());
    return;
  }
  if (!whole) figures = answer.step->figures;
  const auto key = std::string(setting.schedule.name) + " " +
                   std::to_string(setting.request.ranks) + " " +
                   std::to_string(setting.request.micro_batches);
  const auto [known, is_new] = makespans.try_emplace(key, figures.makespan_ns);
  if (!is_new && known->second != figures.makespan_ns) {
    std::fprintf(stderr, "period_speed: the two ways differ for %s\n", key.c_str());
    std::exit(1);
  }
  std::printf("%-12s %4d %12d %-8s %20lld %10.5f %10.1f %10.1f\n", setting.schedule.name.data(),
              setting.request.ranks, setting.request.micro_batches, whole ? "long" : "skipped",
              static_cast<long long>(figures.makespan_ns), figures.bubble_ratio, seconds * 1e3,
              mebibytes());
  std::fflush(stdout);
}

void rows(const char* name, int ranks, int chunks, bool whole, double most) {
  const StageCosts each{.f = Nanoseconds(1'000'003),
                        .i = Nanoseconds(1'200'007),
                        .w = Nanoseconds(800'011),
                        .b = Nanoseconds(2'000'018),
                        .opt = {},
                        .reduce = {},
                        .unshard = {}};
  for (int m = 1000; m <= most; m *= 10) {
    const Setting setting{
        planner::find_schedule(name),
        {.ranks = ranks, .micro_batches = m / ranks * ranks, .chunks = chunks, .parameters = {}},
        CostTable::uniform(ranks * chunks, each, Nanoseconds(10'007)),
        comm_policy_preset("ideal")};
    if (!whole || setting.actions() <= kMostActionsOfLongWay) row(setting, whole);
    if (m == 1'000'000'000) break;
  }
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  const double most = argc > 1 ? std::atof(argv[1]) : 1e9;
  std::printf("%-12s %4s %12s %-8s %20s %10s %10s %10s\n", "schedule", "p", "m", "way",
              "makespan ns", "bubble", "ms", "MiB so far");
  for (const bool whole : {false, true}) {
    pipewright::rows("1f1b", 4, 1, whole, most);
    pipewright::rows("1f1b", 64, 1, whole, most);
    pipewright::rows("interleaved", 8, 2, whole, most);
    pipewright::rows("zb-h1", 16, 1, whole, most);
    pipewright::rows("gpipe", 16, 1, whole, most);
    pipewright::rows("looped-bfs", 8, 2, whole, most);
    pipewright::rows("hanayo", 8, 2, whole, most);
    pipewright::rows("v-half", 8, 2, whole, most);
  }
  return 0;
}
