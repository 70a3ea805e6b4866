// tune --measure: its flags, and what they start.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/configurations/costing.hpp"
#include "planner/search/search.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

std::vector<Flag> measuring_flags();

/// Throws InputError where these flags stand without --measure, or with it beside flags of searches
/// that measure nothing.
void check_measuring_flags(const Arguments& arguments);

/// A job that tune has read.
struct MeasuredJob {
  const Job& job;
  const std::optional<Profile>& profile;
  const planner::Costing& costing;
  const planner::SearchOptions& options;
};
/// Measures, prints and saves the plan of the best; the exit status.
int tune_measured(const MeasuredJob& asked, const Arguments& arguments, Session& session);

}  // namespace pipewright::tools
