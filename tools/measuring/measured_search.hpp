// `tune --measure`: the search that runs a launch command for a few configurations
// (docs/decisions/0049-measuring-search.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/prospects.hpp"
#include "tools/cli/session.hpp"
#include "tools/measuring/command_template.hpp"
#include "tools/measuring/output_reader.hpp"
#include "tools/measuring/trial_record.hpp"

namespace pipewright::tools {

struct MeasureSettings {
  CommandTemplate command;
  std::vector<OutputPattern> patterns;
  std::vector<planner::ListedConfiguration> listed;  // to choose among; empty: those of a search
  int runs = 8;                                      // at most so many
  Nanoseconds time;                                  // of all runs together; 0: any
  Nanoseconds timeout = Nanoseconds(1'800'000'000'000);  // of one run
  double within = 0.03, confidence = 0.9;
};

struct Trial {
  std::string configuration;
  Nanoseconds predicted;  // before it was measured
  TrialRecord record;
  bool known = false;  // from the journal
};

struct MeasuredSearch {
  std::vector<Trial> trials;         // in their order
  std::vector<std::string> refused;  // "CONFIGURATION: why no export has it"
  planner::Prospects last;           // after the last trial
  std::string best;                  // the configuration of the least measured step; "": none ran
  Nanoseconds best_step;
  double chance = 1;    // at most, that one that was not tried is faster by more than `within`
  std::string stopped;  // a sentence
};

/// Chooses, runs, fits, until one of the sentences of `stopped` is true. `journal`: null, or what
/// is known, by configuration; what is measured is added. The same job, settings and journal give
/// the same result, wherever it was broken off. Throws as prospects_of() does; Interrupted after a
/// signal, when the command and all that it started have ended.
MeasuredSearch measure(Job job, const Profile* profile, const planner::SearchOptions& options,
                       const MeasureSettings& settings, planner::SearchJournal* journal,
                       Session& session);

}  // namespace pipewright::tools
