// The tuner: from a job, and a profile if there is one, to ranked plans. Branch and bound: what a
// rule, the memory limit or a bound on the step's time rules out is not simulated; of the rest the
// simulator's step time decides.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "planner/base/left_out.hpp"
#include "planner/configurations/candidate.hpp"
#include "planner/search/step_intervals.hpp"

namespace pipewright::planner {

struct SearchProgress {
  std::string_view phase;  // "searching", "improving orders", "making the plan", "what would do"
  std::int64_t simulated = 0, left_out = 0;  // so far
  const Candidate* best = nullptr;           // null before the first
};

/// Processes that make the same search, each a part of its simulations. All of them get the same
/// answer.
struct SearchShare {
  int process = 0, processes = 1;
  /// Tells all others a text; the texts of all processes, in their order.
  std::function<std::vector<std::string>(const std::string&)> exchange;
};

/// What earlier searches have simulated, of the same job or of others, and what this one adds.
struct SearchJournal {
  std::map<std::string, std::string> known;  // configuration to record, as search() has written it
  std::function<void(const std::string& configuration, const std::string& record)> add;
};

/// What synthesis made of the first rows (planner/search/winners.hpp).
struct WinnersSynthesis {
  int winners = 0, better = 0;  // rows that it looked at; those with a better order
  std::int64_t orders = 0;      // that were timed
  double gain = 0;              // the largest share of a row's step that a better order takes off
};

struct SearchOptions {
  int threads = 0;  // 0: as many as this machine has cores
  int cores = 0;  // cores that ranks on a shared machine divide among themselves; 0: this machine's
  int keep = 20;  // rows of the ranked table
  bool exhaustive = false;  // simulate whatever keeps to the rules and the memory
  bool front = false;       // fill SearchResult::front
  bool synthesis = true;    // look for better orders of the winners, where schedules are open
  /// Leave out what `run` cannot execute (planner/plans/executable.hpp).
  bool only_executable = false;
  /// Stop after as much work as an ordinary core does in that time (planner/search/budget.hpp); 0:
  /// never.
  double budget_seconds = 0;
  bool nearest = true;          // fill SearchResult::nearest where nothing is possible
  bool first_possible = false;  // stop at the first that is possible, and make no plan of it
  SearchShare share;
  SearchJournal* journal = nullptr;  // not owned
  /// Called between two batches and where a phase begins, by the thread that called search().
  std::function<void(const SearchProgress&)> progress;
};

struct SearchResult {
  /// Best first: by step time, then by memory, then the simpler one. Includes the baseline where
  /// the job allows it.
  std::vector<Candidate> ranked;
  /// How well the steps are known: by ranked row where costs are estimated, of the best as drawn
  /// from a profile's spread where it has one. search() leaves both empty, fill_intervals() does
  /// not.
  std::vector<StepInterval> intervals;
  std::optional<Distribution> drawn_best;
  /// The best of schedule naive on several ranks and on one, where each fits. Some of them may be
  /// ruled out as a plan by the job's fixed fields.
  std::vector<Candidate> baselines;
  /// With SearchOptions::front, fastest first: each the fastest that needs a twentieth less memory
  /// than the one before it.
  std::vector<Candidate> front;
  /// ranked[0] as a plan, complete; nothing if no configuration is possible (`pruned` says why).
  std::optional<Plan> best;
  /// What each of its ranks may hold where nodes differ; empty: they do not.
  std::vector<Bytes> rank_memory;
  std::int64_t configurations = 0;  // of the space: simulated or left out
  int evaluated = 0;                // simulated
  LeftOutCounts pruned;             // not simulated or not possible
  LeftOutExamples examples;
  /// Where no configuration is possible, in sentences: the reason that is nearest to possible, with
  /// its numbers, and what would do (planner/search/nearest_possible.hpp).
  std::vector<std::string> nearest;
  /// With SearchOptions::only_executable, a faster one that `run` cannot execute.
  std::optional<Candidate> not_executable;
  /// Nothing where it was not asked for, the job names schedules, or the budget ran out before.
  std::optional<WinnersSynthesis> synthesis;
  bool complete = true;  // false: the budget ran out before everything was ruled out
  std::int64_t elapsed_ns = 0;
};

/// Deterministic: neither threads nor timing change anything but elapsed_ns. What cannot be among
/// the `keep` best, by a bound that no order can beat, is not simulated. Throws InputError for a
/// job or a profile that does not make sense; that nothing fits is a result.
SearchResult search(const Job& job, const Profile* profile = nullptr,
                    const SearchOptions& options = {});

}  // namespace pipewright::planner
