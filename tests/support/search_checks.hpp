// What holds of the tuner's searches, whatever is searched: with bounds and without them, by any
// number of threads, and of a plan that went through its file.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "planner/branches/branch.hpp"
#include "planner/branches/recompute_by_stage.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/search.hpp"

namespace pipewright::test {

inline planner::SearchOptions search_options(int keep, bool exhaustive, int threads = 0) {
  planner::SearchOptions options;
  options.keep = keep;
  options.exhaustive = exhaustive;
  options.threads = threads;
  return options;
}

inline planner::SearchResult searched(const Job& job, int keep, bool exhaustive, int threads = 0) {
  return planner::search(job, nullptr, search_options(keep, exhaustive, threads));
}

/// The search with its bounds found what simulating everything finds, and counted as much.
inline void expect_same_rows(const planner::SearchResult& quick, const planner::SearchResult& all) {
  ASSERT_EQ(quick.configurations, all.configurations);
  ASSERT_EQ(quick.ranked.size(), all.ranked.size());
  EXPECT_LE(quick.evaluated, all.evaluated);
  for (std::size_t k = 0; k < all.ranked.size(); ++k) {
    EXPECT_EQ(quick.ranked[k].step, all.ranked[k].step);
    EXPECT_EQ(describe(quick.ranked[k]), describe(all.ranked[k]));
  }
  ASSERT_EQ(quick.baselines.size(), all.baselines.size());
  for (std::size_t k = 0; k < all.baselines.size(); ++k) {
    EXPECT_EQ(quick.baselines[k].step, all.baselines[k].step);
    EXPECT_EQ(describe(quick.baselines[k]), describe(all.baselines[k]));
  }
}

/// Of a row that was found without bounds.
inline void expect_bounds_hold(const planner::ConfigurationCosts& costs,
                               const planner::Candidate& row) {
  SCOPED_TRACE(describe(row));
  const bool overlaps = planner::find_schedule(row.schedule).traits.overlaps;
  EXPECT_LE(overlaps ? costs.least_overlapped_step(row.parallel) : costs.least_step(row.parallel),
            row.step.value);
  EXPECT_LE(costs.least_memory(row.parallel), row.peak_bytes);
  const planner::Configuration configuration{&planner::find_schedule(row.schedule), row.parallel,
                                             row.partition == "even"};
  EXPECT_LE(planner::bound_of(configuration, row.stages, costs), row.step.value);
  // With room for no more than it holds.
  const auto memory = planner::chosen_stage_memory(costs, row.parallel, row.stages);
  EXPECT_TRUE(may_fit(configuration, row.stages, memory, row.peak_bytes));
  EXPECT_LE(planner::bound_of(configuration, row.stages, costs,
                              planner::chosen_stage_costs(costs, row.parallel, row.stages),
                              planner::room_of(configuration, row.stages, memory, row.peak_bytes)),
            row.step.value);
}

/// Of all rows of a search without bounds.
inline void expect_bounds_hold(const planner::ConfigurationCosts& costs,
                               const planner::SearchResult& all) {
  for (const planner::Candidate& row : all.ranked) expect_bounds_hold(costs, row);
  for (const planner::Candidate& row : all.baselines) expect_bounds_hold(costs, row);
}

/// The best plan, read back from its file, is the same and is predicted as it was searched. Needs
/// one.
inline Plan expect_survives_its_file(const planner::SearchResult& result) {
  const Plan plan = read_plan(JsonCursor(to_json(*result.best), "plan.json"));
  EXPECT_EQ(to_text(to_json(plan)), to_text(to_json(*result.best)));
  Plan again = plan;
  again.predicted = {};
  EXPECT_EQ(planner::fill_prediction(again).verdict, Verdict::Ok);
  EXPECT_EQ(again.predicted.step, result.ranked.front().step);
  return plan;
}

inline void expect_same_search(const planner::SearchResult& one,
                               const planner::SearchResult& other) {
  EXPECT_EQ(one.evaluated, other.evaluated);
  EXPECT_EQ(one.pruned, other.pruned);
  ASSERT_EQ(one.best.has_value(), other.best.has_value());
  if (!one.best) return;
  EXPECT_EQ(to_text(to_json(*one.best)), to_text(to_json(*other.best)));
}

}  // namespace pipewright::test
