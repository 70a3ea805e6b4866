// Predicted against measured step time and memory of divided layers: the best configurations that
// `tune` finds for a small Llama and a small Mixtral with tp, sp, cp, ep, dp and pp open on
// local-cpu, each run as it is on the virtual clock. A row a configuration, then a summary of each
// model. docs/evidence/benchmarks/divided.md has a result.
//   divided_study [configurations of a job, default 30] [rounds, default 5]
//                 [measured steps of a configuration and round, default 4]
//                 [a job: llama, mixtral or zero; default all]
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/model/transformer.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/profile/profile.hpp"
#include "planner/configurations/requested_divisions.hpp"
#include "planner/plans/drawn_steps.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/plan_of_candidate.hpp"
#include "planner/search/search.hpp"
#include "sim/engine.hpp"

namespace pipewright::bench {
namespace {

/// What runs and profiles train on: it decides which experts get how many rows.
constexpr char kText[] = PIPEWRIGHT_SOURCE_DIR "/LICENSE";

struct Effort {
  int configurations = 30, rounds = 5, steps = 4;
};

struct Subject {
  std::string name, word;  // of the command line
  Job job;
};

std::int64_t median(std::vector<std::int64_t> times) {
  return distribution_of(std::move(times)).median().value;
}

/// What the actions of a step take together, on all ranks: from the first part of each to its end.
struct Busy {
  std::int64_t f = 0, backward = 0, opt = 0;

  void add(const Program& program, const Timeline& timeline) {
    std::optional<std::int64_t> begun;
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      const ActionKind kind = program.code[id].kind;
      const bool is_part = program.action_of_part(id) != nullptr;
      if (!is_part && !is_compute(kind) && kind != ActionKind::Opt) continue;
      if (!begun) begun = timeline.start[id];
      if (is_part) continue;
      const std::int64_t took = timeline.end[id] - *begun;
      (kind == ActionKind::F ? f : kind == ActionKind::Opt ? opt : backward) += took;
      begun.reset();
    }
  }
};

/// What the rounds have found of a configuration, by round.
struct Found {
  planner::Candidate what;
  std::vector<std::int64_t> predicted_ns;                // from measured parts of layers
  std::vector<std::int64_t> shared_ns;                   // from shares of whole layers
  std::vector<std::int64_t> drawn_ns;                    // median of drawn steps
  std::vector<std::int64_t> measured_ns;                 // median of the round's steps
  Busy predicted_busy, measured_busy;                    // of all rounds
  std::int64_t predicted_bytes = 0, measured_bytes = 0;  // of the fullest rank, in any round

  double step_error() const { return error(predicted_ns, measured_ns); }
  double share_error() const { return error(shared_ns, measured_ns); }
  double drawn_error() const { return error(drawn_ns, measured_ns); }
  /// Of the search's own number, from its one profile.
  double search_error() const {
    return error(std::vector<std::int64_t>(measured_ns.size(), what.step.value), measured_ns);
  }
  /// The median of the rounds' errors.
  static double error(const std::vector<std::int64_t>& predicted,
                      const std::vector<std::int64_t>& measured) {
    std::vector<double> errors;
    for (std::size_t r = 0; r < predicted.size(); ++r)
      errors.push_back(static_cast<double>(predicted[r]) / static_cast<double>(measured[r]) - 1);
    std::sort(errors.begin(), errors.end());
    return (errors[(errors.size() - 1) / 2] + errors[errors.size() / 2]) / 2;
  }
  double memory_error() const {
    return static_cast<double>(predicted_bytes) / static_cast<double>(measured_bytes) - 1;
  }
};

/// Byte level, four blocks of width 128 in Llama's style; with `experts` in Mixtral's, each of half
/// that width and two for a token.
Model small_model(int experts) {
  TransformerShape shape{.hidden = 128,
                         .layers = 4,
                         .heads = 4,
                         .ffn = experts > 0 ? 176 : 352,
                         .vocabulary = 256,
                         .sequence = 64};
  shape.style = TransformerStyle::Llama;
  shape.kv_heads = 2;
  if (experts > 0) shape.choice = {.experts = experts, .top_k = 2, .balance_loss = 0.02};
  Model model;
  model.name = experts > 0 ? "small Mixtral" : "small Llama";
  model.layers = expand(shape);
  model.sequence = shape.sequence;
  return model;
}

Job job_of(Model model) {
  Job job;
  job.model = std::move(model);
  job.cluster = cluster_preset("local-cpu", 8);
  job.global_batch = 8;
  job.strategy.mp_degree = {"1", "2", "4"};
  job.strategy.use_sequence_parallel = {"false", "true"};
  job.strategy.cp_degree = {"1", "2"};
  job.strategy.dp_degree = {"1", "2"};
  job.strategy.pp_degree = {"1", "2", "4"};
  job.strategy.micro_batch_size = {"1", "2", "4"};
  return job;
}

std::vector<Subject> subjects() {
  Job mixtral = job_of(small_model(8));
  mixtral.strategy.ep_degree = {"1", "2"};
  Job zero = job_of(small_model(0));
  zero.strategy.use_sequence_parallel = {"false"};
  zero.strategy.cp_degree = {"1"};
  zero.strategy.dp_degree = {"2", "4"};
  zero.strategy.mp_degree = {"1", "2"};
  zero.strategy.sharding_degree = 2;
  zero.strategy.sharding_stage = {"2", "3"};
  return {{"Llama", "llama", job_of(small_model(0))},
          {"Mixtral", "mixtral", std::move(mixtral)},
          {"Llama with ZeRO 2 and 3", "zero", std::move(zero)}};
}

/// With as many ranks at once as a configuration has, and as many replicas.
Profile take_profile(const Job& job, std::vector<int> sizes, std::vector<StageDivision> divisions,
                     std::vector<int> replicas, std::int64_t budget_ns) {
  exec::ProfileOptions options;
  options.micro_batch_sizes = std::move(sizes);
  options.ranks = job.cluster.devices();
  options.divisions = std::move(divisions);
  options.replicas = std::move(replicas);
  options.budget_ns = budget_ns;
  options.clock = exec::local::ClockKind::Virtual;
  options.data.data = kText;
  options.optimizer = exec::optimizer_spec(job.training.optimizer, job.training.learning_rate);
  Profile profile = exec::measure_profile(job.model, job.cluster, options);
  // On the virtual clock messages take what the plan says. On a busy machine they were measured to
  // take milliseconds, which would hide errors of computations: these are an idle machine's.
  profile.transfer_latency = Nanoseconds(5'000);
  profile.transfer_bytes_per_second = 4e9;
  return profile;
}

/// What its costs are made of alone.
Profile take_profile(const Job& job, const planner::Candidate& candidate) {
  const StageDivision division = candidate.parallel.division();
  std::vector<StageDivision> divisions;
  if (division != StageDivision{}) divisions.push_back(division);
  constexpr std::int64_t kShort = 300'000'000;  // the least number of steps takes longer
  return take_profile(job, {candidate.parallel.micro_batch_size}, std::move(divisions),
                      {candidate.parallel.data / candidate.parallel.experts}, kShort);
}

/// As `pipewright profile` has it.
constexpr std::int64_t kSearchBudgetNs = 5'000'000'000;

Plan plan_of(const Job& job, const planner::Candidate& candidate, const Profile& profile) {
  const auto costs = planner::costs_of_job(job, &profile, 0);
  planner::SearchResult result;
  result.ranked = {candidate};
  return planner::plan_of_candidate(job, *costs, result, costs->memory_limit());
}

void run(const Plan& plan, const Profile& profile, int steps, Found& found) {
  const Program program = planner::program_of_run(plan);
  const CostTable costs = planner::costs_of_run(plan);
  constexpr int kDraws = 41;
  found.drawn_ns.push_back(planner::drawn_steps(plan, program, profile, kDraws).median().value);
  const int micro_batches = plan.replicas() * plan.micro_batches;
  const auto data = exec::make_data(plan.model,
                                    {.samples = plan.micro_batch_size,
                                     .micro_batches = micro_batches,
                                     .seed = plan.training.seed},
                                    kText);
  exec::cpu::Training training;
  training.model = &plan.model;
  training.stages = plan.stages;
  training.micro_batch_size = plan.micro_batch_size;
  training.micro_batches = micro_batches;
  training.seed = plan.training.seed;
  training.optimizer = exec::optimizer_spec(plan.training.optimizer, plan.training.learning_rate);
  training.options.ranks.rows = plan.division().rows;
  training.options.recompute = recompute_of(plan.model, plan.training.recompute);
  training.data = data.get();
  training.clock = exec::local::ClockKind::Virtual;
  const auto result = exec::cpu::run_on_cpu(program, costs, training, {.steps = steps + 1});
  found.measured_busy.add(program, result.timeline);
  found.predicted_busy.add(program, sim::simulate(program, costs).timeline);
  std::vector<std::int64_t> steps_ns;
  for (std::size_t s = 1; s < result.steps.size(); ++s) steps_ns.push_back(result.steps[s].step_ns);
  found.measured_ns.push_back(median(std::move(steps_ns)));
  const auto most = std::max_element(result.peak_bytes.begin(), result.peak_bytes.end());
  found.measured_bytes = std::max(found.measured_bytes, *most);
  for (const Bytes bytes : plan.predicted.peak_bytes)
    found.predicted_bytes = std::max(found.predicted_bytes, bytes.value);
}

std::string name_of(const planner::Candidate& what) {
  const planner::ParallelSetup& p = what.parallel;
  const auto field = [](const char* name, int value) {
    return std::string(name) + " " + std::to_string(value) + " ";
  };
  return field("tp", p.tensor) + (p.sequence_parallel ? "sp " : "") + field("cp", p.context) +
         field("pp", p.pipeline) + field("dp", p.data) + field("ep", p.experts) +
         field("zero", p.zero) + field("m", p.micro_batches) + field("b", p.micro_batch_size) +
         what.schedule;
}

void summarise(const Subject& subject, const std::vector<Found>& all) {
  const auto line = [&](const char* what, auto&& error) {
    double sum = 0, bias = 0, worst = 0;
    for (const Found& found : all) {
      sum += std::abs(error(found));
      bias += error(found);
      worst = std::max(worst, std::abs(error(found)));
    }
    const auto count = static_cast<double>(all.size());
    std::printf("%s: %s mean absolute error %.2f %%, signed %+.2f %%, largest %.2f %%\n",
                subject.name.c_str(), what, 100 * sum / count, 100 * bias / count, 100 * worst);
  };
  line("step", [](const Found& found) { return found.step_error(); });
  line("step as drawn", [](const Found& found) { return found.drawn_error(); });
  line("step as the search has it", [](const Found& found) { return found.search_error(); });
  line("step by shares of whole layers", [](const Found& found) { return found.share_error(); });
  line("peak memory", [](const Found& found) { return found.memory_error(); });
}

/// The machine's speed changes within seconds where others use it, so each configuration is
/// profiled and run in turn, in every round.
void study(const Subject& subject, const Effort& effort) {
  const Job& job = subject.job;
  const Profile first = take_profile(job, {1, 2, 4}, planner::divisions_of(job),
                                     planner::replicas_to_measure(job), kSearchBudgetNs);
  std::vector<Found> all;
  const auto ranked = planner::search(job, &first, {.keep = effort.configurations}).ranked;
  for (const planner::Candidate& row : ranked) all.push_back({.what = row});
  for (int round = 0; round < effort.rounds; ++round) {
    for (Found& found : all) {
      Profile profile = take_profile(job, found.what);
      const Plan plan = plan_of(job, found.what, profile);
      found.predicted_ns.push_back(plan.predicted.step.value);
      run(plan, profile, effort.steps, found);
      profile.divided.clear();
      found.shared_ns.push_back(plan_of(job, found.what, profile).predicted.step.value);
    }
  }
  for (const Found& found : all) {
    std::printf("%-52s %9.3f %9.3f %+7.2f %+7.2f %+7.2f %+7.2f %9.2f %+7.2f",
                name_of(found.what).c_str(), static_cast<double>(median(found.predicted_ns)) / 1e6,
                static_cast<double>(median(found.measured_ns)) / 1e6, 100 * found.step_error(),
                100 * found.drawn_error(), 100 * found.search_error(), 100 * found.share_error(),
                static_cast<double>(found.measured_bytes) / 1048576, 100 * found.memory_error());
    for (const auto kind : {&Busy::f, &Busy::backward, &Busy::opt})
      std::printf(" %+7.2f", 100 * (static_cast<double>(found.predicted_busy.*kind) /
                                        static_cast<double>(found.measured_busy.*kind) -
                                    1));
    std::printf("\n");
  }
  summarise(subject, all);
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  using namespace pipewright::bench;
  Effort effort;
  const auto number = [&](int at, int& value) {
    if (argc > at) value = std::max(1, std::atoi(argv[at]));
  };
  number(1, effort.configurations);
  number(2, effort.rounds);
  number(3, effort.steps);
  double load[1] = {0};
  getloadavg(load, 1);
  std::printf("virtual clock; %u cores, load before it %.1f\n", std::thread::hardware_concurrency(),
              load[0]);
  std::printf("%-52s %9s %9s %7s %7s %7s %7s %9s %7s %7s %7s %7s\n", "configuration", "predicted",
              "measured", "error", "drawn", "search", "shares", "MiB", "error", "F", "I,W,B",
              "OPT");
  const std::string only = argc > 4 ? argv[4] : "";
  for (const Subject& subject : subjects()) {
    if (!only.empty() && subject.word != only) continue;
    study(subject, effort);
    std::fflush(stdout);
  }
  return 0;
}
