// Simulated against measured step time, over schedules, micro-batches and partitions that the
// profile was not taken from: a row a case, then a summary. docs/evidence/benchmarks/prediction.md
// has a result.
//   prediction_study [virtual|wall|both, default both] [measured steps a case and round,
//                    default 3] [cases at most of a model, default all] [rounds, default 5]
// Virtual clock: pp 4 and 8. Wall clock: pp 2, for it needs a core a rank.
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/profile/profile.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/costs/drawn_durations.hpp"
#include "sim/engine.hpp"
#include "tests/bench/study_models.hpp"

namespace pipewright::bench {
namespace {

using exec::local::ClockKind;

constexpr std::uint64_t kUneven = 5;

struct Effort {
  int steps = 3;              // of a case in a round
  std::size_t cases = 1'000;  // of a model, at most
  int rounds = 5;
};

/// Ways to make one number of a profile's measurements, and of them a step time.
constexpr std::size_t kWays = 4;
constexpr const char* kWayNames[kWays] = {"medians", "middles", "means", "draws"};

struct Subject {
  Model model;
  int micro_batch_size = 1;
  Profile profile;
};

struct Case {
  const char* schedule;
  int ranks, micro_batches, chunks;
  std::uint64_t cut;  // 0: even
};

struct Outcome {
  Case what;
  std::string group;  // the same but for the schedule
  std::array<double, kWays> predicted_ns{};
  double measured_ns = 0;
  double spread = 0;  // 90 % quantile over 10 % quantile of the measured steps, less 1

  double error(std::size_t way) const { return predicted_ns[way] / measured_ns - 1; }
};

std::vector<Case> cases_of(ClockKind clock) {
  struct Size {
    int ranks, micro_batches;
    std::uint64_t cut;
  };
  const std::vector<Size> sizes =
      clock == ClockKind::Virtual
          ? std::vector<Size>{{4, 4, kUneven}, {4, 8, 0}, {8, 8, kUneven}, {8, 16, 0}}
          : std::vector<Size>{{2, 2, kUneven}, {2, 6, 0}, {2, 8, kUneven}, {2, 16, 0}};
  std::vector<Case> cases;
  for (const Size& size : sizes) {
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1", "interleaved", "zbv"}) {
      const bool chunked = planner::find_schedule(schedule).default_chunks > 1;
      cases.push_back({schedule, size.ranks, size.micro_batches, chunked ? 2 : 1, size.cut});
    }
  }
  return cases;
}

/// The same profile with other numbers for what is typical of its measurements.
Profile with(const Profile& profile, Nanoseconds (*typical_of)(const Distribution&)) {
  Profile other = profile;
  for (ProfileSize& size : other.sizes) {
    for (std::size_t l = 0; l < size.layers.size(); ++l) {
      const LayerSpread& spread = size.spreads[l];
      const auto move = [&](Nanoseconds& time, const Distribution& measured) {
        const Nanoseconds moved = time + typical_of(measured) - typical(measured, profile.clock);
        time = std::max(Nanoseconds(1), moved);
      };
      move(size.layers[l].f, spread.f);
      move(size.layers[l].i, spread.i);
      move(size.layers[l].w, spread.w);
      move(size.layers[l].opt, spread.opt);
    }
  }
  return other;
}

CostTable costs_of(const Subject& subject, const Profile& profile, const Program& program,
                   const std::vector<StagePlan>& stages) {
  const int ranks = program.ranks();
  return planner::CostModel(subject.model, cluster_preset("local-cpu", ranks), &profile)
      .table(stages, ranks, subject.micro_batch_size, "adamw");
}

std::int64_t makespan(const Program& program, const CostTable& costs) {
  return sim::simulate(program, costs).timeline.makespan_ns;
}

std::int64_t median_of_draws(const Subject& subject, const Program& program, const CostTable& costs,
                             const std::vector<StagePlan>& stages) {
  constexpr std::uint64_t kDraws = 41;
  const planner::DrawnDurations durations(program, costs, stages, subject.profile,
                                          subject.micro_batch_size);
  std::vector<std::int64_t> steps;
  for (std::uint64_t k = 0; k < kDraws; ++k) {
    const std::vector<std::int64_t> drawn = durations.draw(k);
    steps.push_back(sim::simulate(program, costs, {.compute_ns = drawn}).timeline.makespan_ns);
  }
  return distribution_of(std::move(steps)).median().value;
}

/// What the rounds have found of a case.
struct Found {
  Program program;
  std::vector<StagePlan> stages;
  std::array<std::vector<std::int64_t>, kWays> predicted_ns;  // by round
  std::vector<std::int64_t> steps_ns;
};

void measure(const Subject& subject, ClockKind clock, int steps, Found& found) {
  const Program& program = found.program;
  const CostTable costs = costs_of(subject, subject.profile, program, found.stages);
  const auto data = exec::make_data(
      subject.model,
      {.samples = subject.micro_batch_size, .micro_batches = program.micro_batches, .seed = 1},
      PIPEWRIGHT_SOURCE_DIR "/LICENSE");
  exec::cpu::Training training;
  training.model = &subject.model;
  training.stages = found.stages;
  training.micro_batch_size = subject.micro_batch_size;
  training.micro_batches = program.micro_batches;
  training.data = data.get();
  training.clock = clock;
  const auto run = exec::cpu::run_on_cpu(program, costs, training, {.steps = steps + 1});
  for (std::size_t s = 1; s < run.steps.size(); ++s) found.steps_ns.push_back(run.steps[s].step_ns);
}

void predict(const Subject& subject, Found& found) {
  const auto by = [&](Nanoseconds (*typical_of)(const Distribution&)) {
    const Profile profile = with(subject.profile, typical_of);
    const CostTable costs = costs_of(subject, profile, found.program, found.stages);
    return makespan(found.program, costs);
  };
  const CostTable costs = costs_of(subject, subject.profile, found.program, found.stages);
  found.predicted_ns[0].push_back(by([](const Distribution& d) { return d.median(); }));
  found.predicted_ns[1].push_back(by([](const Distribution& d) { return d.middle_mean(); }));
  found.predicted_ns[2].push_back(by([](const Distribution& d) { return d.mean; }));
  found.predicted_ns[3].push_back(median_of_draws(subject, found.program, costs, found.stages));
}

Outcome outcome_of(const Subject& subject, const Case& what, const Found& found) {
  Outcome outcome{.what = what,
                  .group = subject.model.name + " pp " + std::to_string(what.ranks) + " m " +
                           std::to_string(what.micro_batches)};
  const Distribution steps = distribution_of(found.steps_ns);
  outcome.measured_ns = static_cast<double>(steps.median().value);
  outcome.spread = static_cast<double>(steps.quantiles[5].value) /
                       static_cast<double>(steps.quantiles[1].value) -
                   1;
  for (std::size_t way = 0; way < kWays; ++way)
    outcome.predicted_ns[way] =
        static_cast<double>(distribution_of(found.predicted_ns[way]).median().value);
  std::printf("%-7s %2d %3d %-11s %d %-6s %10.3f", subject.model.name.c_str(), what.ranks,
              what.micro_batches, what.schedule, what.chunks, what.cut == 0 ? "even" : "uneven",
              outcome.measured_ns / 1e6);
  for (std::size_t way = 0; way < kWays; ++way) std::printf(" %+8.2f", 100 * outcome.error(way));
  std::printf(" %7.1f\n", 100 * outcome.spread);
  std::fflush(stdout);
  return outcome;
}

/// Kendall's tau over the pairs of schedules of one group, all groups together; pairs whose
/// measured times differ by no more than `tie` are left out.
double kendall_tau(const std::vector<Outcome>& outcomes, std::size_t way, double tie, int* pairs) {
  int concordant = 0, all = 0;
  for (std::size_t a = 0; a < outcomes.size(); ++a) {
    for (std::size_t b = a + 1; b < outcomes.size(); ++b) {
      if (outcomes[a].group != outcomes[b].group) continue;
      const double measured = outcomes[a].measured_ns - outcomes[b].measured_ns;
      if (std::abs(measured) <= tie * outcomes[a].measured_ns) continue;
      const double predicted = outcomes[a].predicted_ns[way] - outcomes[b].predicted_ns[way];
      ++all;
      concordant += (measured > 0) == (predicted > 0) ? 1 : 0;
    }
  }
  *pairs = all;
  return all == 0 ? 1 : 2.0 * concordant / all - 1;
}

void summarise(const std::vector<Outcome>& outcomes, std::size_t way) {
  double sum = 0, worst = 0, bias = 0;
  for (const Outcome& outcome : outcomes) {
    sum += std::abs(outcome.error(way));
    bias += outcome.error(way);
    worst = std::max(worst, std::abs(outcome.error(way)));
  }
  const auto count = static_cast<double>(outcomes.size());
  int pairs = 0, clear_pairs = 0;
  const double tau = kendall_tau(outcomes, way, 0, &pairs);
  const double clear_tau = kendall_tau(outcomes, way, 0.02, &clear_pairs);
  std::printf(
      "  from %-8s mean absolute error %5.2f %%, signed %+5.2f %%, worst %5.2f %%; Kendall tau "
      "%.3f over %d pairs, %.3f over the %d that differ by more than 2 %%\n",
      kWayNames[way], 100 * sum / count, 100 * bias / count, 100 * worst, tau, pairs, clear_tau,
      clear_pairs);
}

/// Takes the profile, with pp 2, 4 micro-batches and even cuts whatever the case; returns its sum.
std::int64_t take_profile(Subject& subject, ClockKind clock) {
  subject.profile = exec::measure_profile(subject.model, cluster_preset("local-cpu", 2),
                                          {.micro_batch_sizes = {subject.micro_batch_size},
                                           .ranks = 2,
                                           .budget_ns = 1'200'000'000,
                                           .clock = clock});
  std::int64_t sum = 0;
  for (const LayerTimes& layer : subject.profile.sizes[0].layers)
    sum += layer.f.value + layer.i.value + layer.w.value;
  return sum;
}

/// The cases of one size. The machine's speed changes within seconds where others use it, so
/// profile and cases take turns: in each round a profile, then some steps of every case. What
/// counts is the median of all steps, and of the rounds' predictions.
void study_size(Subject& subject, const std::vector<Case>& cases, ClockKind clock,
                const Effort& effort, std::vector<std::int64_t>& sums,
                std::vector<Outcome>& outcomes) {
  std::vector<Found> found;
  for (const Case& what : cases) {
    Found one;
    one.program = training_program(what.schedule, what.ranks, what.micro_batches, what.chunks);
    one.stages = partition(subject.model, one.program, what.cut);
    found.push_back(std::move(one));
  }
  for (int round = 0; round < effort.rounds; ++round) {
    sums.push_back(take_profile(subject, clock));
    for (Found& one : found) {
      predict(subject, one);
      measure(subject, clock, effort.steps, one);
    }
  }
  for (std::size_t c = 0; c < cases.size(); ++c)
    outcomes.push_back(outcome_of(subject, cases[c], found[c]));
}

void study_model(Subject subject, ClockKind clock, const Effort& effort,
                 std::vector<Outcome>& outcomes) {
  std::vector<Case> cases = cases_of(clock);
  cases.resize(std::min(cases.size(), effort.cases));
  std::vector<std::int64_t> sums;
  for (std::size_t begin = 0; begin < cases.size();) {
    const auto same_size = [&](const Case& one) {
      return one.ranks == cases[begin].ranks && one.micro_batches == cases[begin].micro_batches;
    };
    std::vector<Case> group;
    while (begin + group.size() < cases.size() && same_size(cases[begin + group.size()]))
      group.push_back(cases[begin + group.size()]);
    study_size(subject, group, clock, effort, sums, outcomes);
    begin += group.size();
  }
  const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
  std::printf("%s: its %zu profiles are up to %.1f %% apart\n", subject.model.name.c_str(),
              sums.size(), 100 * (static_cast<double>(*most) / static_cast<double>(*least) - 1));
}

void study(ClockKind clock, const Effort& effort) {
  const char* name = clock == ClockKind::Virtual ? "virtual clock" : "wall clock";
  double load[1] = {0};
  getloadavg(load, 1);
  std::printf("%s; %u cores, load before it %.1f\n", name, std::thread::hardware_concurrency(),
              load[0]);
  std::printf("%-7s %2s %3s %-11s %s %-6s %10s %8s %8s %8s %8s %7s\n", "model", "pp", "m",
              "schedule", "v", "cut", "measured", kWayNames[0], kWayNames[1], kWayNames[2],
              kWayNames[3], "spread");
  std::vector<Outcome> outcomes;
  for (const auto& [model, size] : {std::pair{gpt(16), 1}, {mlp(12), 64}})
    study_model({.model = model, .micro_batch_size = size, .profile = {}}, clock, effort, outcomes);
  double spread = 0;
  for (const Outcome& outcome : outcomes) spread += outcome.spread;
  std::printf("%s: %zu cases; a case's steps spread by %.1f %% (10 %% to 90 %% quantile, mean)\n",
              name, outcomes.size(), 100 * spread / static_cast<double>(outcomes.size()));
  for (std::size_t way = 0; way < kWays; ++way) summarise(outcomes, way);
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  using pipewright::exec::local::ClockKind;
  const std::string clock = argc > 1 ? argv[1] : "both";
  pipewright::bench::Effort effort;
  if (argc > 2) effort.steps = std::max(1, std::atoi(argv[2]));
  if (argc > 3) effort.cases = static_cast<std::size_t>(std::max(1, std::atoi(argv[3])));
  if (argc > 4) effort.rounds = std::max(1, std::atoi(argv[4]));
  std::printf("measured in ms, errors of the four predictions and spreads in %%\n");
  if (clock != "wall") pipewright::bench::study(ClockKind::Virtual, effort);
  if (clock != "virtual") pipewright::bench::study(ClockKind::Wall, effort);
  return 0;
}
