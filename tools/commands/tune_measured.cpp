#include "tools/commands/tune_measured.hpp"

#include <sstream>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "planner/base/number_text.hpp"
#include "planner/search/search_json.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/table.hpp"
#include "tools/measuring/measured_search.hpp"
#include "tools/output/measured_text.hpp"
#include "tools/running/search_journal.hpp"
#include "tools/running/tuning.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kMostListed = 4096;

/// A configuration a line; empty ones and what follows a "#" are skipped.
std::vector<planner::ListedConfiguration> listed_in(const std::string& file) {
  std::istringstream lines(read_text(file));
  std::vector<planner::ListedConfiguration> listed;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.erase(std::min(line.find('#'), line.size()));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    listed.push_back({line, file, "line " + std::to_string(number)});
  }
  if (listed.empty() || listed.size() > kMostListed) {
    throw InputError(file, "",
                     "expected 1 to " + std::to_string(kMostListed) +
                         " configurations, one a line, such as tp=4,pp=8,schedule=1f1b");
  }
  return listed;
}

double share(const Arguments& arguments, const char* flag, int least, int most, int otherwise) {
  return arguments.integer_or(flag, least, most, otherwise) / 100.0;
}

MeasureSettings settings_of(const Arguments& arguments) {
  MeasureSettings settings;
  settings.command = read_command_template(*arguments.text("--measure"));
  bool reads_steps = false;
  for (const std::string& text : arguments.all("--read")) {
    settings.patterns.push_back(read_output_pattern(text));
    for (const OutputGroup& group : settings.patterns.back().groups)
      reads_steps = reads_steps || group.what == OutputGroup::What::Step;
  }
  if (!reads_steps) {
    throw InputError(
        "missing --read: what in the command's output is a step's time, such as "
        "'step_ms=iteration \\(ms\\): ([0-9.]+)'");
  }
  if (const auto file = arguments.text("--among")) settings.listed = listed_in(*file);
  settings.runs = arguments.integer_or("--runs", 1, 256, settings.runs);
  if (const auto time = arguments.duration("--time-limit")) settings.time = *time;
  if (const auto time = arguments.duration("--run-timeout")) settings.timeout = *time;
  settings.within = share(arguments, "--within", 0, 50, 3);
  settings.confidence = share(arguments, "--confidence", 50, 99, 90);
  return settings;
}

/// What a trial's record depends on.
Json asked_of(const Arguments& arguments) {
  return {{"command", *arguments.text("--measure")},
          {"read", arguments.all("--read")},
          {"run_timeout", arguments.text_or("--run-timeout", "")}};
}

Json trials_json(const MeasuredSearch& found) {
  Json trials = Json::array();
  for (const Trial& trial : found.trials) {
    Json one = {{"configuration", trial.configuration}, {"predicted_ns", trial.predicted.value}};
    one.update(to_json(trial.record));
    trials.push_back(std::move(one));
  }
  return trials;
}

Json fields_of(const MeasuredSearch& found) {
  Json fields = {{"trials", trials_json(found)},
                 {"refused", found.refused},
                 {"best", found.best.empty() ? Json(nullptr) : Json(found.best)},
                 {"best_step_ns", found.best_step.value},
                 {"chance_of_better", found.chance},
                 {"stopped", found.stopped},
                 {"calibration", measured_fields(found.last.fit)}};
  return fields;
}

void print_trials(const MeasuredSearch& found, Session& session) {
  using Align = Table::Align;
  Table table({{"run", Align::Right},
               {"step", Align::Right},
               {"predicted", Align::Right},
               {"memory", Align::Right},
               {"configuration"}});
  int number = 0;
  for (const Trial& trial : found.trials) {
    const TrialRecord& record = trial.record;
    const bool ran = record.outcome == TrialOutcome::Ran;
    const bool is_best = trial.configuration == found.best;
    table.add({std::to_string(++number),
               ran ? format_duration(record.step) : std::string(name_of(record.outcome)),
               format_duration(trial.predicted),
               record.peak.value > 0 ? format_bytes(record.peak) : "", trial.configuration},
              is_best ? Ink::Green
              : ran   ? Ink::Plain
                      : Ink::Dim);
  }
  if (number > 0) session.print(table.text(session.terminal()) + "\n");
  for (const std::string& refused : found.refused)
    session.print(wrapped("not tried: " + refused, session.terminal().width, 0));
}

void print_found(const MeasuredSearch& found, Session& session) {
  const int width = session.terminal().width;
  print_trials(found, session);
  session.print(measured_text(found.last.fit, session.terminal()));
  session.print(wrapped(found.stopped, width, 0));
  if (found.best.empty()) return;
  session.print(wrapped("Best of what was measured: " + found.best + ", " +
                            format_duration(found.best_step) +
                            " a step. The chance that one that was not tried is faster by more "
                            "than --within: at most " +
                            planner::percent(found.chance) + ".",
                        width, 0));
}

Flag flag(std::string_view name, std::string_view argument, std::string_view help) {
  return {.group = "Measuring", .name = name, .argument = argument, .help = help};
}

}  // namespace

std::vector<Flag> measuring_flags() {
  Flag read = flag("--read", "PATTERN",
                   "what the command prints: step_ms=REGEX, whose first group is meant, or groups "
                   "with names, (?<step_ms>[0-9.]+); step_s, _ms, _us, _ns, peak_bytes, _kib, "
                   "_mib, _gib, _kb, _mb, _gb, out_of_memory; may be repeated");
  read.repeatable = true;
  Flag among = flag("--among", "FILE",
                    "the configurations to choose among, one a line, as --explain takes them; "
                    "without it the best of a search");
  among.is_file = true;
  return {flag("--measure", "COMMAND",
               "runs this launch command for a few configurations, fits the costs to what it "
               "measures, and keeps the best; {tp}, {pp}, {schedule}, {micro_batch}, {plan}, "
               "{flags:megatron}, … stand for what a configuration sets (docs/tuning.md)"),
          std::move(read),
          std::move(among),
          flag("--runs", "N", "of the command, at most (8)"),
          flag("--time-limit", "TIME", "no run begins once all have taken so long together"),
          flag("--run-timeout", "TIME", "ends a run that takes longer (30 minutes); 0: never"),
          flag("--within", "PERCENT",
               "stops where no configuration that was not tried is faster by more (3)"),
          flag("--confidence", "PERCENT", "with which that is so (90)")};
}

void check_measuring_flags(const Arguments& arguments) {
  if (!arguments.has("--measure")) {
    for (const Flag& each : measuring_flags()) {
      if (arguments.has(each.name))
        throw InputError(std::string(each.name) + " belongs to tune --measure COMMAND");
    }
    return;
  }
  if (arguments.positionals().empty()) throw InputError("missing JOB, which --measure is about");
  for (const char* other :
       {"--explain", "--front", "--synthesise", "--transport", "--top", "--html", "--samples"}) {
    if (arguments.has(other))
      throw InputError(std::string(other) + " does not go with --measure; leave one of them out");
  }
}

int tune_measured(const MeasuredJob& asked, const Arguments& arguments, Session& session) {
  const MeasureSettings settings = settings_of(arguments);
  const Profile* const profile = asked.profile ? &*asked.profile : nullptr;
  std::optional<SearchJournalFile> journal;
  if (const auto file = arguments.text("--resume"))
    journal.emplace(*file, head_of_measurements(asked.job, profile, asked_of(arguments)), true);
  const MeasuredSearch found = measure(asked.job, profile, watched(asked.options, session),
                                       settings, journal ? &journal->journal() : nullptr, session);
  if (session.json()) {
    session.print_result(
        {{"costing", planner::costing_fields(asked.costing)}, {"measuring", fields_of(found)}});
  } else {
    print_found(found, session);
  }
  if (found.best.empty()) {
    session.note(found.trials.empty() ? "nothing was measured"
                                      : "no run gave a step time; the reasons are above");
    return found.trials.empty() ? kAnswerIsNo : kRunFailed;
  }
  const std::string out = arguments.text_or("--out", asked.job.tuner_save_path);
  if (out.empty()) {
    session.note("-o plan.json writes the plan of the best");
    return kDone;
  }
  Job job = asked.job;
  job.measured_steps.clear();
  for (const planner::FittedStep& step : found.last.fit.steps)
    job.measured_steps.push_back(step.measured);
  Plan plan = planner::plan_of_configuration(job, profile, asked.options.cores, found.best,
                                             found.last.search);
  plan.tuner.reasons.push_back(
      "The best of " +
      count_of(static_cast<int>(job.measured_steps.size()), "measured configuration") + ": " +
      format_duration(found.best_step) + " a step. " + found.stopped);
  session.save(out, to_text(to_json(plan)));
  session.wrote(out, "; next: pipewright simulate " + out);
  return kDone;
}

}  // namespace pipewright::tools
