// The search as tune and demo show it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/search.hpp"
#include "tools/cli/session.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

Profile load_profile(const std::string& path);
/// The file that --profile names, else the one that the job names, else none.
std::optional<Profile> profile_for(const Job& job, const std::optional<std::string>& flag);

/// search(), with a line on stderr while it runs; Ctrl-C ends the process at once.
planner::SearchResult search_with_progress(const Job& job, const std::optional<Profile>& profile,
                                           const planner::SearchOptions& options, Session& session);

/// Does the work, with a line on stderr that says what it is.
void while_showing(std::string_view what, Session& session, const std::function<void()>& work);

/// The options, with that line.
planner::SearchOptions watched(planner::SearchOptions options, Session& session);

/// planner::explain(), with the same line.
planner::Explanation explain_with_progress(const Job& job, const std::optional<Profile>& profile,
                                           const planner::SearchOptions& options,
                                           const planner::SearchResult& found,
                                           const std::string& asked, Session& session);

/// What tuning leaves for a run.
struct TunedForRun {
  std::optional<Plan> plan;
  bool stops = false;  // tuner_run_mode is tuner_only: the plan was saved, and that is all
};

/// The plan of a job file that names none, tuned now and saved where tuner_save_path says; nothing
/// if `path` is no job file, or one with a tuner_load_path. Throws InputError for a job that is to
/// run only and names no plan, and for one that is to tune only and does not say where to save.
TunedForRun tune_for_run(const std::string& path, Session& session);

/// The ranked table with the baseline rows, what fell, and why the best one won.
/// `drawn`: what is said of steps drawn of several rows, instead of those of the first.
void print_search(const planner::SearchResult& result, Session& session,
                  const std::string& drawn = "");

/// For a page: the ranked table with the baseline rows, and the fastest plans for less memory where
/// they were asked for.
std::vector<traces::PageTable> search_tables(const planner::SearchResult& result);

}  // namespace pipewright::tools
