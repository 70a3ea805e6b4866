// A job's costs, fitted to measured steps: the scales that made the steps are found again, one row
// is met as it is, and what ran out of memory says how much devices hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/base/error.hpp"
#include "core/model/architecture_model.hpp"
#include "planner/measured/expectation.hpp"
#include "planner/measured/memory_fit.hpp"
#include "planner/search/closed_fit.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/prospects.hpp"

namespace pipewright::planner {
namespace measured_fit_test {

using ::testing::HasSubstr;

/// Steps that consist of computations, messages and launches in several shares.
struct Parts {
  double computing, messages, launches;
};
const std::vector<Parts> kParts{{5, 1, 0.2}, {3, 3, 0.1}, {2, 0.5, 2}, {4, 2, 1}, {1, 4, 0.5}};

std::vector<double> seconds_with(const CostScales& scales, std::size_t rows) {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < rows; ++i) {
    const Parts& part = kParts[i % kParts.size()];
    seconds.push_back(scales.time * (part.computing + scales.messages * part.messages +
                                     scales.launches * part.launches));
  }
  return seconds;
}

ScaleFit fit_of(const CostScales& truth, std::size_t rows) {
  return fit_scales(seconds_with(truth, rows),
                    [&](const CostScales& scales) { return seconds_with(scales, rows); });
}

TEST(ScaleFit, FindsWhatMadeManyRows) {
  const CostScales truth{1.15, 1.4, 0.7};
  const ScaleFit fit = fit_of(truth, 200);
  EXPECT_EQ(fit.fitted, 3);
  EXPECT_NEAR(fit.scales.time, truth.time, 0.02);
  EXPECT_NEAR(fit.scales.messages, truth.messages, 0.04);
  EXPECT_NEAR(fit.scales.launches, truth.launches, 0.04);
  EXPECT_LT(fit.spread, 0.02);
  for (const double residual : fit.residuals) EXPECT_LT(std::abs(residual), 0.01);
}

TEST(ScaleFit, HasFewerScalesThanRowsAndMeetsOneRow) {
  const CostScales truth{1.3, 1.2, 1};
  const ScaleFit none = fit_of(truth, 0), one = fit_of(truth, 1), two = fit_of(truth, 2);
  EXPECT_EQ(none.fitted, 0);
  EXPECT_EQ(none.scales.time, 1);
  EXPECT_EQ(one.fitted, 1);
  EXPECT_DOUBLE_EQ(one.scales.time, seconds_with(truth, 1)[0] / seconds_with({}, 1)[0]);
  EXPECT_EQ(one.residuals, std::vector<double>{0});
  EXPECT_EQ(two.fitted, 1);
  EXPECT_EQ(two.scales.messages, 1);
  EXPECT_EQ(fit_of(truth, 3).scales.launches, 1);
}

/// With one scale the fit is the mean of the logarithms, drawn to 0 as ridge regression draws it.
TEST(ScaleFit, OfTwoRowsIsTheShrunkenMean) {
  const std::vector<double> measured{9, 7}, predicted{6, 6};
  const ScaleFit fit = fit_scales(measured, [&](const CostScales& scales) {
    return std::vector<double>{predicted[0] * scales.time, predicted[1] * scales.time};
  });
  const double sum = std::log(9.0 / 6) + std::log(7.0 / 6);
  const double rows = 2 / (0.08 * 0.08), prior = 1 / (0.2 * 0.2);
  EXPECT_NEAR(std::log(fit.scales.time), sum / 2 * rows / (rows + prior), 1e-6);
}

TEST(ScaleFit, KnowsLessOfWhatIsUnlikeTheRows) {
  const ScaleFit fit = fit_of({}, 5);
  const double alike = fit.deviation({1, 0.3, 0.1}), unlike = fit.deviation({1, 0.3, 5});
  EXPECT_GT(unlike, 2 * alike);
  EXPECT_GT(alike, fit.spread);
  EXPECT_LT(alike, fit_of({}, 0).deviation({1, 0.3, 0.1}));
}

/// Before anything is measured the deviation is that of the tables, and one row says more.
TEST(ScaleFit, OfNothingIsAsWrongAsTablesThatWereLeftOut) {
  const ScaleFit none = fit_of({}, 0);
  EXPECT_NEAR(none.deviation({1, 0, 0}), std::hypot(0.13, 0.08), 1e-12);
  EXPECT_NEAR(none.deviation({1, 1, 0}), std::hypot(0.13, 0.2, 0.08), 1e-12);
  EXPECT_LT(fit_of({}, 1).deviation({1, 0.17, 0.03}), none.deviation({1, 0.17, 0.03}));
}

/// What one configuration is off by beside its source says nothing of two of one job.
TEST(ScaleFit, IsToldHowFarAMachineAndAKindOfJobAreOff) {
  ScaleFit fit = fit_of({}, 0);
  const ScaleVector one{1, 0.3, 0.1}, other{1, 0.5, 0.1};
  const double apart = fit.deviation_between(one, other);
  const SourceDeviations dense = deviations_of_sources(0.06, false, false);
  fit.expect_within(dense);
  EXPECT_NEAR(fit.deviation({1, 0, 0}), std::hypot(0.06, dense.one), 1e-12);
  EXPECT_NEAR(fit.deviation({1, 0, 1}), std::hypot(0.06, dense.one, dense.launches), 1e-12);
  EXPECT_DOUBLE_EQ(fit.deviation_between(one, other), apart);
  // A row that is as predicted narrows it, one that is far off widens it.
  ScaleFit near = fit_of({}, 1), far = fit_of({1.5, 1, 1}, 1);
  near.expect_within(dense);
  far.expect_within(dense);
  EXPECT_LT(near.deviation(one), fit.deviation(one));
  EXPECT_GT(far.deviation(one), near.deviation(one));
  // Less is known of mixtures, and of ranks that wait for one another's host.
  ScaleFit mixture = fit, waiting = fit;
  mixture.expect_within(deviations_of_sources(0.06, true, false));
  waiting.expect_within(deviations_of_sources(0.06, false, true));
  EXPECT_GT(mixture.deviation(one), fit.deviation(one));
  EXPECT_GT(waiting.deviation(one), fit.deviation(one));
  EXPECT_DOUBLE_EQ(waiting.deviation({1, 0.3, 0}), fit.deviation({1, 0.3, 0}));
}

TEST(ScaleFit, TwoRowsOfOneMachineShareItsErrors) {
  const ScaleFit fit = fit_of({}, 0);
  const ScaleVector one{1, 0.3, 0.1}, other{1, 0.5, 0.1};
  EXPECT_DOUBLE_EQ(fit.deviation_between(one, one), std::sqrt(2.0) * fit.spread);
  EXPECT_NEAR(fit.deviation_between(one, other), std::hypot(std::sqrt(2.0) * fit.spread, 0.2 * 0.2),
              1e-12);
  EXPECT_LT(fit.deviation_between(one, other), fit.deviation(one));
}

TEST(MemoryFit, IsTheShrunkenMeanOfPeaksAndLeavesOneWithoutAny) {
  const MemoryFit fit = fit_memory({{10, 11, true}, {20, 24, true}}, 100);
  const double rows = 2 / (0.05 * 0.05), prior = 1 / (0.1 * 0.1);
  const double sum = std::log(1.1) + std::log(1.2);
  EXPECT_NEAR(std::log(fit.scale), sum / 2 * rows / (rows + prior), 1e-4);
  EXPECT_EQ(fit_memory({{99, 0, true}}, 100).scale, 1);
  EXPECT_EQ(fit_memory({{99, 0, false}}, 0).scale, 1);  // out of an unknown memory
}

TEST(MemoryFit, LearnsFromWhatRanOutAndFromWhatRan) {
  const double alone = fit_memory({{80, 0, false}}, 100).scale;
  EXPECT_GT(alone, 1.1);
  EXPECT_LT(alone, 1.4);
  const double beside = fit_memory({{80, 0, false}, {78, 0, true}}, 100).scale;
  EXPECT_LT(beside, alone);
  EXPECT_GT(beside, 1);
  const MemoryFit fit = fit_memory({{80, 0, false}}, 100);
  EXPECT_LT(chance_to_fit(fit, 80 * fit.scale, 100), chance_to_fit(fit, 50 * fit.scale, 100));
  EXPECT_EQ(chance_to_fit(fit, 80, 0), 1);
  // Far on the wrong side, where density and chance both vanish.
  EXPECT_TRUE(std::isfinite(fit_memory({{1, 0, false}, {1000, 0, true}}, 100).scale));
}

/// By adding up slices of the distribution.
TEST(Expectation, EqualsTheSumOfItsSlices) {
  for (const Outlook outlook : {Outlook{10, 0.1, 1}, Outlook{12, 0.3, 0.5}, Outlook{9, 0.02, 1}}) {
    double gain = 0, below = 0;
    const double best = 10, step = 1e-3;
    for (double z = -8; z < 8; z += step) {
      const double share = std::exp(-z * z / 2) / std::sqrt(2 * M_PI) * step;
      const double seconds = outlook.seconds * std::exp(outlook.deviation * z);
      gain += share * std::max(0.0, best - seconds);
      if (seconds < best) below += share;
    }
    EXPECT_NEAR(expected_improvement(outlook, best), outlook.fits * gain, 1e-4);
    EXPECT_NEAR(chance_below(outlook, best), outlook.fits * below, 1e-3);
  }
}

Job estimated_job() {
  Job job;
  job.architecture = architecture_preset("llama3-8b");
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset("dgx-h100");
  job.cluster.nodes = 2;
  job.global_batch = 64;
  return job;
}

TEST(MeasuredJob, IsScaledByPeaksAndTimes) {
  Job job = estimated_job();
  const auto steps_of = [&](const std::string& text) {
    const auto costs = costs_of_job(job, nullptr, 0);
    const Configuration configuration = configuration_of_job(job, *costs, text, "", "");
    return priced(job, nullptr, 0, {configuration}, {}).front();
  };
  const std::vector<std::string> texts{"tp=8,pp=2,micro_batch_size=1", "tp=4,pp=2,dp=2",
                                       "tp=2,pp=4,dp=2,recompute=full", "tp=2,pp=2,dp=4,zero=1"};
  std::vector<MeasuredStep> measured;
  for (const std::string& text : texts) {
    const Priced as_it_is = steps_of(text);
    measured.push_back({text, Nanoseconds(std::llround(as_it_is.seconds * 1.2e9)),
                        Bytes(std::llround(as_it_is.peak_bytes * 1.05)), "", ""});
  }
  job.measured_steps = measured;
  const MeasuredFit fit = fit_measured_steps(job, nullptr, 0);
  EXPECT_NEAR(fit.times.scales.time, 1.2, 0.02);
  EXPECT_NEAR(fit.memory.scale, 1.05, 0.01);
  EXPECT_THAT(fit.summary(), HasSubstr("fitted to 4 measured steps: times 1.1"));
  const auto costs = costs_of_job(job, nullptr, 0);
  EXPECT_THAT(costs->remarks({}).front(), HasSubstr("fitted to 4 measured steps"));
  for (const FittedStep& step : fit.steps)
    EXPECT_NEAR(static_cast<double>(step.predicted.value) / step.measured.step.value, 1, 0.02);
}

TEST(MeasuredJob, NamesTheRowThatIsWrong) {
  Job job = estimated_job();
  job.measured_steps = {{"tp=2,dp=8", Nanoseconds(1), {}, "job.json", "/measured_steps/0"},
                        {"tp=5,dp=3", Nanoseconds(1), {}, "job.json", "/measured_steps/1"}};
  try {
    (void)costs_of_job(job, nullptr, 0);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.pointer(), "/measured_steps/1");
    EXPECT_THAT(error.message(), HasSubstr("\"tp=5,dp=3\" is no configuration of this job"));
  }
}

TEST(Prospects, HaveTextsThatNameThem) {
  const Job job = estimated_job();
  const Prospects found = prospects_of(job, nullptr, {}, {});
  ASSERT_GT(found.list.size(), 10U);
  EXPECT_GT(found.unlisted, 0);
  const auto costs = costs_of_job(job, nullptr, 0);
  for (const Prospect& each : found.list) {
    const Configuration read = configuration_of_job(job, *costs, each.configuration, "", "");
    Candidate again;
    again.schedule = read.schedule->name;
    again.parallel = read.parallel;
    again.partition = read.even_layers ? "even" : read.rank_evened ? "by-rank" : "balanced";
    EXPECT_EQ(text_of(again), each.configuration);
    const double seconds = priced(job, nullptr, 0, {read}, {}).front().seconds;
    EXPECT_NEAR(seconds, static_cast<double>(each.candidate.step.value) * 1e-9, 1e-9)
        << each.configuration;
  }
}

TEST(StepIntervals, AreNarrowedByAMeasuredStepAndTellOnlyWhatIsFarApart) {
  Job job = estimated_job();
  job.architecture = architecture_preset("llama3-70b");
  job.model = model_of(*job.architecture);
  job.cluster.nodes = 8;
  SearchOptions options;
  options.keep = 400;
  const SearchResult found = search(job, nullptr, options);
  const std::vector<StepInterval> intervals = intervals_of(job, nullptr, 0, found.ranked);
  ASSERT_EQ(intervals.size(), found.ranked.size());
  const double first = static_cast<double>(found.ranked.front().step.value);
  EXPECT_FALSE(intervals.front().told_from_first);
  const double known = machine_of(job.cluster).time_deviation();
  int told = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const StepInterval& interval = intervals[i];
    const auto step = static_cast<double>(found.ranked[i].step.value);
    // Symmetric around the step's logarithm, and at least as wide as what is known of the device.
    EXPECT_NEAR(static_cast<double>(interval.low.value) * static_cast<double>(interval.high.value),
                step * step, step * 2);
    EXPECT_GT(static_cast<double>(interval.high.value),
              step * std::exp(kDeviationsOfSources * known));
    // Two equal rows' spread is 0.08 each.
    if (interval.told_from_first) {
      EXPECT_GT(std::log(step / first), 1.28 * 0.08 * std::sqrt(2.0));
    }
    told += interval.told_from_first;
  }
  EXPECT_GT(told, 0);
  job.measured_steps = {
      {text_of(found.ranked.front()), Nanoseconds(found.ranked.front().step.value)}};
  const SearchResult found_again = search(job, nullptr, options);
  const std::vector<StepInterval> measured = intervals_of(job, nullptr, 0, found_again.ranked);
  const auto width = [](const StepInterval& interval) {
    return static_cast<double>(interval.high.value) / static_cast<double>(interval.low.value);
  };
  EXPECT_LT(width(measured.front()), width(intervals.front()));
}

/// A schedule that plans its order for the memory that there is has another where costs differ a
/// little; that a step jumps with it says nothing of messages and launches.
TEST(StepIntervals, DoNotDependOnHowLittleMemoryThereIs) {
  Job job = estimated_job();
  job.architecture = architecture_preset("gpt3-175b");
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset("dgx-a100", 1024);
  job.global_batch = 1536;
  const Configuration planned =
      read_configuration(
          "schedule=zbv-auto,tp=4,pp=8,dp=32,vpp=2,micro_batch_size=2,zero=1,sequence_parallel=on",
          job, nullptr)
          .configuration;
  const auto slopes = [&](std::int64_t limit) {
    job.strategy.memory_limit = Bytes(limit);
    return slopes_of(job, nullptr, 0, {planned}, {}).front();
  };
  const ScaleVector little = slopes(std::int64_t{75} << 30), plenty = slopes(std::int64_t{1} << 50);
  for (std::size_t k = 0; k < kScales; ++k) {
    EXPECT_DOUBLE_EQ(little[k], plenty[k]);
    EXPECT_LE(little[k], 1.01);  // no cost is more than the whole step
  }
}

TEST(StepIntervals, AreOfEstimatedJobsAlone) {
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("local-cpu");
  job.global_batch = 16;
  const SearchResult found = search(job, nullptr, {});
  EXPECT_FALSE(found.ranked.empty());
  EXPECT_TRUE(intervals_of(job, nullptr, 0, found.ranked).empty());
}

TEST(ClosedFit, MeetsOneStepAndScalesAll) {
  Job job = estimated_job();
  ParallelSpace space;
  space.devices = 16;
  space.global_batch = 64;
  space.pipeline = space.zero = {1};
  space.sequence_parallel = {false};
  space.recompute = {LayerRecompute::Whole};
  const FrameworkTraits framework = megatron_core();
  const MeasuredFit none = fit_closed_estimate(job, framework, space);
  const ParallelResult before = search_fitted(job, framework, space, none, 5, false);
  const ParallelSetup& best = before.ranked.front().setup;
  job.measured_steps = {
      {"tp=" + std::to_string(best.tensor) + ",pp=1,dp=" + std::to_string(best.data) +
           ",zero=1,recompute=full,micro_batch_size=" + std::to_string(best.micro_batch_size),
       Nanoseconds(60'000'000'000),
       {},
       "",
       ""}};
  const MeasuredFit fit = fit_closed_estimate(job, framework, space);
  EXPECT_EQ(fit.steps.front().predicted.value, 60'000'000'000);
  const ParallelResult after = search_fitted(job, framework, space, fit, 5, false);
  EXPECT_NEAR(after.ranked.front().estimate.step, 60, 1e-6);
  EXPECT_NEAR(after.ranked[3].estimate.step / before.ranked[3].estimate.step, fit.times.scales.time,
              1e-9);
  job.measured_steps.front().configuration = "tp=2,pp=2,schedule=zbv";
  EXPECT_THROW((void)fit_closed_estimate(job, framework, space), InputError);
}

}  // namespace measured_fit_test
}  // namespace pipewright::planner
