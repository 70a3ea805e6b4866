// Recompute stage by stage: the choice against all choices there are, on random jobs that are small
// enough to try them all; and the moments it is made from against the walk over a Program.
#include "planner/branches/recompute_by_stage.hpp"

#include <gtest/gtest.h>

#include "core/model/architecture_model.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/search/job_costs.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace recompute_by_stage_test {

using test::Draw;
using test::searched;
using Kinds = std::vector<LayerRecompute>;

/// One configuration of a job.
struct Case {
  Job job;
  Configuration configuration;
  std::vector<StagePlan> stages;
};

/// Estimated, or layer by layer.
Job random_job(Draw& random) {
  Job job;
  job.global_batch = 16;
  job.strategy.recompute = {"by_stage"};
  if (random.coin()) {
    const int heads = random.one_of(8, 16);
    Architecture model = gpt_architecture("gpt", 64 * heads, random.one_of(6, 7, 9), heads, 32000,
                                          random.one_of(512, 1024));
    model.gated = random.below(4) == 0;
    model.tied_head = random.coin();
    job.architecture = model;
    job.model = model_of(model);
    job.cluster = cluster_preset("dgx-a100", 8);
    job.strategy.framework = random.one_of(megatron_core(), megatron_lm());
  } else {
    job.model = model_preset(random.one_of("gpt-tiny", "mlp"));
    job.cluster = cluster_preset("dgx-a100", 8);
    job.strategy.opens_recompute = true;
    job.training.clip_grad_norm = random.one_of(0.0, 1.0);
  }
  return job;
}

Case random_case(std::uint32_t seed, const std::vector<const char*>& schedules) {
  Draw random(seed);
  Case one;
  one.job = random_job(random);
  ParallelSetup setup;
  const int layers = static_cast<int>(one.job.model.layers.size());
  setup.pipeline = std::min(random.one_of(2, 3, 4), layers);
  setup.micro_batch_size = random.one_of(1, 2);
  setup.micro_batches = one.job.global_batch / setup.micro_batch_size;
  setup.recompute.by_stage = true;
  const char* name =
      schedules[static_cast<std::size_t>(random.below(static_cast<int>(schedules.size())))];
  const Schedule& schedule = find_schedule(name);
  if (schedule.layout == Layout::Bidirectional) setup.pipeline = random.one_of(2, 4);
  setup.chunks = schedule.default_chunks;
  if (schedule.default_chunks > 1) setup.pipeline = 2;
  one.configuration = {&schedule, setup, random.coin()};
  return one;
}

/// The stages, where the model has enough layers for them.
bool cut(Case& one, const ConfigurationCosts& costs) {
  const ParallelSetup& setup = one.configuration.parallel;
  const ScheduleRequest request{setup.pipeline, setup.micro_batches, setup.chunks, {}};
  if (refusal_of(*one.configuration.schedule, request)) return false;
  const int stages = placement_of(*one.configuration.schedule, request).stages();
  if (stages > static_cast<int>(one.job.model.layers.size())) return false;
  one.stages = stages_of(one.configuration, costs);
  return true;
}

/// Every stage any kind.
std::vector<Kinds> all_choices(const Kinds& kinds, std::size_t stages) {
  std::vector<Kinds> all{{}};
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<Kinds> longer;
    for (const Kinds& choice : all) {
      for (const LayerRecompute kind : kinds) {
        longer.push_back(choice);
        longer.back().push_back(kind);
      }
    }
    all = std::move(longer);
  }
  return all;
}

Evaluation with(const Case& one, const ConfigurationCosts& costs, const Kinds& choice,
                Bytes limit) {
  Branch branch{one.configuration, std::make_shared<const std::vector<StagePlan>>(one.stages), 0};
  branch.configuration.parallel.recompute.of_stage = choice;
  return evaluate(one.job, costs, branch, limit);
}

/// Between what the least needs and what the most of all stages needs.
Bytes random_limit(const Case& one, const ConfigurationCosts& costs, std::uint32_t seed) {
  const auto peak = [&](LayerRecompute kind) {
    const Kinds alike(one.stages.size(), kind);
    return with(one, costs, alike, Bytes(0)).candidate.peak_bytes.value;
  };
  const std::int64_t a = peak(LayerRecompute::None), b = peak(LayerRecompute::Whole);
  const std::int64_t least = std::min(a, b), most = std::max(a, b);
  return Bytes(least - 1 + (most - least) * static_cast<std::int64_t>(seed % 11) / 10);
}

/// The fastest of all choices that keep to the limit.
std::optional<Candidate> best_of_all(const Case& one, const ConfigurationCosts& costs,
                                     Bytes limit) {
  std::optional<Candidate> best;
  for (const Kinds& choice : all_choices(costs.recompute_kinds(), one.stages.size())) {
    const Evaluation tried = with(one, costs, choice, limit);
    if (!tried.pruned && (!best || tried.candidate.step < best->step)) best = tried.candidate;
  }
  return best;
}

TEST(RecomputeByStage, IsTheBestOfAllChoicesWithOneStageARank) {
  int mixed = 0, impossible = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    Case one = random_case(seed, {"1f1b", "gpipe", "naive", "eager-1f1b", "zb-h1", "zb-h2"});
    const auto costs = costs_of_job(one.job, nullptr, 0);
    ASSERT_TRUE(cut(one, *costs));
    const Bytes limit = random_limit(one, *costs, seed);
    const std::optional<Candidate> best = best_of_all(one, *costs, limit);
    const Evaluation chosen = with(one, *costs, {}, limit);
    ASSERT_EQ(!chosen.pruned, best.has_value()) << seed;
    if (!best) {
      ++impossible;
      continue;
    }
    EXPECT_EQ(chosen.candidate.step, best->step)
        << seed << ": " << describe(chosen.candidate) << ", and not " << describe(*best);
    EXPECT_LE(chosen.candidate.peak_bytes, limit);
    const Kinds& kinds = chosen.candidate.parallel.recompute.of_stage;
    mixed += kinds.front() != kinds.back() ? 1 : 0;
  }
  EXPECT_GT(mixed, 60);
  EXPECT_GT(impossible, 5);
}

TEST(RecomputeByStage, FitsWithSeveralStagesARankAndNoOneStageCouldDoLess) {
  int mixed = 0;
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    Case one = random_case(seed, {"interleaved", "zbv", "v-half", "interleaved-zb", "looped-bfs",
                                  "dualpipev", "chimera"});
    const auto costs = costs_of_job(one.job, nullptr, 0);
    if (!cut(one, *costs)) continue;
    const Bytes limit = random_limit(one, *costs, seed);
    const Evaluation chosen = with(one, *costs, {}, limit);
    if (chosen.pruned) {
      for (const LayerRecompute kind : costs->recompute_kinds())
        EXPECT_TRUE(with(one, *costs, Kinds(one.stages.size(), kind), limit).pruned);
      continue;
    }
    EXPECT_LE(chosen.candidate.peak_bytes, limit) << seed;
    const Kinds& kinds = chosen.candidate.parallel.recompute.of_stage;
    for (std::size_t s = 0; s < kinds.size(); ++s) {
      for (const LayerRecompute less : costs->recompute_kinds()) {
        if (less >= kinds[s]) break;
        Kinds lighter = kinds;
        lighter[s] = less;
        EXPECT_TRUE(with(one, *costs, lighter, limit).pruned) << seed << ", stage " << s;
      }
    }
    mixed += std::count(kinds.begin(), kinds.end(), kinds.front()) <
                     static_cast<std::ptrdiff_t>(kinds.size())
                 ? 1
                 : 0;
  }
  EXPECT_GT(mixed, 20);
}

/// With several stages a rank the rule is no proof. What it costs, on four stages of two ranks:
/// nothing in most cases.
TEST(RecomputeByStage, WithSeveralStagesARankIsNotFarFromTheBestOfAllChoices) {
  int compared = 0, as_good = 0;
  double worst = 1;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Case one = random_case(seed, {"interleaved", "zbv", "interleaved-zb", "looped-bfs"});
    const auto costs = costs_of_job(one.job, nullptr, 0);
    if (!cut(one, *costs)) continue;
    const Bytes limit = random_limit(one, *costs, seed);
    const auto best = best_of_all(one, *costs, limit);
    const Evaluation chosen = with(one, *costs, {}, limit);
    if (!best || chosen.pruned) continue;
    const auto step = static_cast<double>(chosen.candidate.step.value);
    worst = std::max(worst, step / static_cast<double>(best->step.value));
    as_good += chosen.candidate.step == best->step ? 1 : 0;
    ++compared;
  }
  RecordProperty("worst", std::to_string(worst));
  EXPECT_GT(compared, 60);
  EXPECT_GT(as_good, compared * 4 / 5);
  EXPECT_LT(worst, 1.05);
}

/// What a branch is bounded by before its recompute is chosen.
TEST(RecomputeByStage, NoBoundOfABranchExceedsWhatIsChosenInIt) {
  int compared = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    Case one = random_case(seed, {"1f1b", "gpipe", "zb-h1", "interleaved", "zbv", "chimera"});
    if (one.job.architecture) one.job.strategy.overlap_grad_reduce = seed % 2 == 0;
    const auto costs = costs_of_job(one.job, nullptr, 0);
    if (!cut(one, *costs)) continue;
    const Bytes limit = random_limit(one, *costs, seed);
    const Configuration& c = one.configuration;
    const ParallelSetup& setup = c.parallel;
    ParallelSetup mesh = setup;
    mesh.chunks = 1;
    const Shape shape{
        c.schedule, setup.chunks,
        placement_of(*c.schedule, {setup.pipeline, setup.micro_batches, setup.chunks, {}})};
    const Branches grown = branches_of(*costs, mesh, {shape}, limit);
    for (const Branch& branch : grown.open) {
      const Evaluation chosen = evaluate(one.job, *costs, branch, limit);
      if (chosen.pruned) continue;
      EXPECT_LE(branch.bound, chosen.candidate.step.value) << describe(chosen.candidate);
      ++compared;
    }
    if (grown.pruned.count(LeftOut::OverMemory) == 0) continue;
    for (const bool even : {false, true}) {  // what the bound leaves out does not fit
      Case other = one;
      other.configuration.even_layers = even;
      ASSERT_TRUE(cut(other, *costs));
      if (!grown.open.empty()) continue;
      EXPECT_EQ(with(other, *costs, {}, limit).pruned, LeftOut::OverMemory);
    }
  }
  EXPECT_GT(compared, 100);
}

/// Jobs that are planned layer by layer; estimated_search_test.cpp has the others.
TEST(RecomputeByStage, IsFoundWithBoundsAsByTryingEverything) {
  int chosen = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Draw random(seed);
    Job job;
    job.model = model_preset(random.one_of("gpt-tiny", "mlp"));
    job.cluster = cluster_preset("dgx-a100", 8);
    job.global_batch = random.one_of(8, 12, 16);
    job.strategy.opens_recompute = true;
    job.strategy.pp_degree = {"2", "3", "4"};
    for (int k = 0; k < 3; ++k)
      job.strategy.schedule_mode.emplace_back(
          random.one_of("1f1b", "gpipe", "zb-h1", "zbv", "interleaved", "zb-1p", "naive"));
    job.strategy.dp_degree = {"1"};
    if (random.coin()) job.strategy.dp_degree = {"1", "2"};
    const SearchResult roomy = searched(job, 10, false);
    if (roomy.ranked.empty()) continue;  // fewer layers than stages
    const std::int64_t open = roomy.ranked.front().peak_bytes.value;
    job.strategy.memory_limit = Bytes(open * random.one_of(50, 70, 80, 90, 100) / 100);
    const SearchResult quick = searched(job, 10, false), all = searched(job, 10, true);
    SCOPED_TRACE(seed);
    test::expect_same_rows(quick, all);
    for (const Candidate& row : all.ranked) chosen += row.parallel.recompute.by_stage ? 1 : 0;
  }
  EXPECT_GT(chosen, 20);
}

TEST(OrderPeaks, AreThoseOfTheProgram) {
  for (const Schedule& schedule : schedules()) {
    for (const int ranks : {1, 2, 4}) {
      const ScheduleRequest request{ranks, 8, schedule.default_chunks, {}};
      if (schedule.traits.searched || refusal_of(schedule, request)) continue;
      const Order order = schedule.make(request);
      const OrderPeaks peaks(order);
      const Program program = lower(order, CommPolicy{}, {});
      for (std::uint32_t seed = 0; seed < 8; ++seed) {
        Draw random(seed);
        CostTable costs = CostTable::uniform(order.stages(), {});
        costs.memory.clear();
        for (int s = 0; s < order.stages(); ++s) {
          const int f = random.below(101), later = random.below(151);
          const auto more = [&] { return Bytes(seed % 2 == 0 ? 0 : random.below(201)); };
          costs.memory.push_back({Bytes(f), Bytes(later - f), Bytes(-later),
                                  Bytes(random.below(51)), more(), more(), more(), more(),
                                  Bytes(random.below(151))});
        }
        const auto walked = peaks_of(program, costs);
        ASSERT_EQ(static_cast<int>(walked.size()), peaks.ranks());
        for (int r = 0; r < peaks.ranks(); ++r) {
          EXPECT_EQ(peaks.peak(r, costs.memory).value,
                    walked[static_cast<std::size_t>(r)].peak_bytes)
              << schedule.name << ", rank " << r << " of " << ranks;
        }
      }
    }
  }
}

}  // namespace recompute_by_stage_test
}  // namespace pipewright::planner
