#include "tools/measuring/measured_search.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/base/number_text.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/branches/named_configuration.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/measuring/trial_command.hpp"
#include "tools/measuring/trial_process.hpp"

namespace pipewright::tools {
namespace {

using planner::Outlook;
using planner::Prospect;

constexpr int kMostFailuresAtFirst = 3;  // where nothing has run yet
constexpr int kMostRefused = 64;

/// The last line of a command's output that has something.
std::string last_line(const std::string& tail) {
  std::size_t end = tail.find_last_not_of(" \t\n");
  if (end == tail.npos) return "";
  const std::size_t before = tail.rfind('\n', end);
  const std::size_t begin = before == tail.npos ? 0 : before + 1;
  constexpr std::size_t kMost = 300;
  return tail.substr(begin, std::min(kMost, end + 1 - begin));
}

TrialRecord record_of(const TrialRun& run) {
  TrialRecord record;
  record.took = run.took;
  const bool ended_well = run.status == 0 && !run.timed_out;
  if (ended_well && run.said.step) {
    record.step = *run.said.step;
    record.peak = run.said.peak.value_or(Bytes(0));
    return record;
  }
  if (run.said.says_out_of_memory) {
    record.outcome = TrialOutcome::OutOfMemory;
    return record;
  }
  record.outcome = run.timed_out ? TrialOutcome::TimedOut : TrialOutcome::Failed;
  const std::string line = last_line(run.tail);
  record.why = ended_well      ? "no step time in its output, by --read"
               : run.timed_out ? "ended after " + format_duration(run.took)
                               : "exit status " + std::to_string(run.status);
  if (!line.empty()) record.why += "; it ends with: " + line;
  return record;
}

/// One call of measure().
class Measuring {
 public:
  Measuring(Job job, const Profile* profile, const planner::SearchOptions& options,
            const MeasureSettings& settings, planner::SearchJournal* journal, Session& session)
      : job_(std::move(job)),
        profile_(profile),
        options_(options),
        settings_(settings),
        journal_(journal),
        session_(session) {
    for (const MeasuredStep& step : job_.measured_steps) take(step);
  }

  MeasuredSearch run() {
    const InterruptScope scope;
    while (true) {
      result_.last = planner::prospects_of(job_, profile_, options_, settings_.listed);
      session_.clear_progress();
      InterruptScope::check();
      result_.chance = chance_of_better();
      result_.stopped = why_to_stop();
      while (result_.stopped.empty()) {
        const Prospect* const next = choose();
        if (next == nullptr) {
          result_.stopped = "Every configuration was tried.";
        } else if (try_out(*next)) {
          break;
        }
      }
      if (!result_.stopped.empty()) return std::move(result_);
    }
  }

 private:
  /// Two texts of one configuration have the same key.
  std::string key_of(const std::string& text) const {
    return planner::text_of(
        planner::unpriced(planner::read_configuration(text, job_, nullptr).configuration));
  }

  void take(const MeasuredStep& step) {
    tried_.insert(key_of(step.configuration));
    if (!step.ran()) return;
    if (!result_.best.empty() && step.step >= result_.best_step) return;
    result_.best = step.configuration;
    result_.best_step = step.step;
  }

  bool has_best() const { return !result_.best.empty(); }
  double best_seconds() const { return static_cast<double>(result_.best_step.value) * 1e-9; }

  std::vector<const Prospect*> untried() const {
    std::vector<const Prospect*> list;
    for (const Prospect& prospect : result_.last.list)
      if (tried_.count(key_of(prospect.configuration)) == 0) list.push_back(&prospect);
    return list;
  }

  /// At most, by Boole's inequality: the sum of the chances of each.
  double chance_of_better() const {
    if (!has_best()) return 1;
    const double aim = best_seconds() * (1 - settings_.within);
    double chance = 0, widest = 0;
    for (const Prospect* each : untried()) {
      chance += planner::chance_below(each->outlook, aim);
      widest = std::max(widest, each->outlook.deviation);
    }
    const planner::Prospects& last = result_.last;
    if (last.unlisted > 0) {
      if (widest == 0) widest = last.list.empty() ? 1 : last.list.back().outlook.deviation;
      chance += static_cast<double>(last.unlisted) *
                planner::chance_below({last.unlisted_seconds, widest}, aim);
    }
    return std::min(1.0, chance);
  }

  std::string why_to_stop() const {
    if (result_.last.list.empty()) return "No configuration is possible.";
    if (has_best() && result_.chance <= 1 - settings_.confidence) {
      return "The chance that a configuration that was not tried is faster by more than " +
             planner::percent(settings_.within) + " is at most " +
             planner::percent(result_.chance) + ".";
    }
    if (static_cast<int>(result_.trials.size()) >= settings_.runs)
      return "All " + count_of(settings_.runs, "run") + " were made (--runs).";
    if (settings_.time.value > 0 && spent_ >= settings_.time)
      return "The time for runs is spent (--time-limit).";
    if (!has_best() && failures_ >= kMostFailuresAtFirst)
      return "The first " + std::to_string(failures_) +
             " runs failed, and not for memory: the command itself may be wrong.";
    return "";
  }

  const Prospect* choose() const {
    const Prospect* chosen = nullptr;
    double most = 0;
    for (const Prospect* each : untried()) {
      const Outlook& outlook = each->outlook;
      // Before anything ran: the least time of what more likely fits than not, else the likeliest.
      const double worth = has_best()            ? expected_improvement(outlook, best_seconds())
                           : outlook.fits >= 0.5 ? 1 + 1 / outlook.seconds
                                                 : outlook.fits;
      if (chosen != nullptr && worth <= most) continue;
      chosen = each;
      most = worth;
    }
    return chosen;
  }

  /// False: no export has this configuration, and another one has to be chosen.
  bool try_out(const Prospect& prospect) {
    const std::string key = key_of(prospect.configuration);
    tried_.insert(key);
    Trial trial{prospect.configuration,
                Nanoseconds(std::llround(prospect.outlook.seconds * 1e9)),
                {},
                false};
    const auto known = journal_ == nullptr ? std::map<std::string, std::string>::const_iterator()
                                           : journal_->known.find(key);
    trial.known = journal_ != nullptr && known != journal_->known.end();
    if (trial.known) {
      trial.record = read_trial_record(known->second);
    } else if (!run_command(prospect, key, trial.record)) {
      return false;
    }
    report(trial);
    learn(prospect.configuration, trial.record);
    result_.trials.push_back(std::move(trial));
    return true;
  }

  bool run_command(const Prospect& prospect, const std::string& key, TrialRecord& record) {
    std::optional<Plan> plan;
    if (needs_plan(settings_.command)) {
      plan = planner::plan_of_configuration(job_, profile_, options_.cores, prospect.configuration,
                                            result_.last.search);
    }
    const TrialCommand command =
        command_of(settings_.command, prospect, plan, job_.global_batch, folder_);
    if (!command.refusal.empty()) {
      result_.refused.push_back(prospect.configuration + ": " + command.refusal);
      if (result_.refused.size() >= kMostRefused)
        result_.stopped = "The formats of {flags:…} and {file:…} have none of the first " +
                          std::to_string(kMostRefused) + " configurations.";
      return false;
    }
    session_.progress("run " + std::to_string(result_.trials.size() + 1) + ": " +
                      prospect.configuration);
    const TrialRun run = run_trial(command.command, settings_.patterns, settings_.timeout);
    session_.clear_progress();
    record = record_of(run);
    if (journal_ != nullptr) journal_->add(key, text_of(record));
    return true;
  }

  void report(const Trial& trial) {
    std::string line =
        "run " + std::to_string(result_.trials.size() + 1) + ": " + trial.configuration + ": ";
    if (trial.record.outcome == TrialOutcome::Ran) {
      line +=
          format_duration(trial.record.step) + ", predicted " + format_duration(trial.predicted);
    } else {
      line += name_of(trial.record.outcome);
      if (!trial.record.why.empty()) line += " (" + trial.record.why + ")";
    }
    session_.note(line + (trial.known ? " (journal)" : ""));
  }

  void learn(const std::string& configuration, const TrialRecord& record) {
    spent_ += record.took;
    const bool ran = record.outcome == TrialOutcome::Ran;
    if (!ran && record.outcome != TrialOutcome::OutOfMemory) {
      ++failures_;
      return;
    }
    const MeasuredStep step{configuration, ran ? record.step : Nanoseconds(0), record.peak, "", ""};
    job_.measured_steps.push_back(step);
    take(step);
  }

  Job job_;
  const Profile* profile_;
  const planner::SearchOptions& options_;
  const MeasureSettings& settings_;
  planner::SearchJournal* journal_;
  Session& session_;
  TrialFolder folder_;
  MeasuredSearch result_;
  std::set<std::string> tried_;
  Nanoseconds spent_;
  int failures_ = 0;
};

}  // namespace

MeasuredSearch measure(Job job, const Profile* profile, const planner::SearchOptions& options,
                       const MeasureSettings& settings, planner::SearchJournal* journal,
                       Session& session) {
  return Measuring(std::move(job), profile, options, settings, journal, session).run();
}

}  // namespace pipewright::tools
