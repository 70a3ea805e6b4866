#include "tools/running/tuning.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/error.hpp"
#include "planner/base/number_text.hpp"
#include "planner/base/parallel.hpp"
#include "planner/configurations/costing.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"
#include "tools/output/candidate_table.hpp"
#include "tools/running/drawn_steps.hpp"

namespace pipewright::tools {
namespace {

/// "synthesis: 3 winners, 1 better order (2.1 % faster), 5210 orders timed".
std::string winners_text(const planner::WinnersSynthesis& synthesis) {
  if (synthesis.winners == 0) return "synthesis: no row with room for a better order";
  std::string text = "synthesis: " + std::to_string(synthesis.winners) +
                     (synthesis.winners == 1 ? " winner, " : " winners, ");
  if (synthesis.better == 0) {
    text += "no better order";
  } else {
    text += std::to_string(synthesis.better) +
            (synthesis.better == 1 ? " better order (" : " better orders (up to ") +
            planner::percent_apart(synthesis.gain) + " faster)";
  }
  return text + ", " + std::to_string(synthesis.orders) + " orders timed";
}

/// "Row 1 takes 13.1 to 25.0 s with a chance of 90 %. Rows 2, 3 cannot be told from it; …"
std::string intervals_text(const std::vector<planner::StepInterval>& intervals) {
  const planner::StepInterval& first = intervals.front();
  std::string text = "Row 1 takes " + format_duration(first.low) + " to " +
                     format_duration(first.high) + " with a chance of 90 % (an estimate). ";
  std::vector<int> alike;
  for (std::size_t i = 1; i < intervals.size(); ++i)
    if (!intervals[i].told_from_first) alike.push_back(static_cast<int>(i) + 1);
  if (alike.empty()) return text + (intervals.size() > 1 ? "The others are slower." : "");
  return text + (alike.size() == 1 ? "Row " : "Rows ") + planner::ranges_of(alike, " to ", ", ") +
         " cannot be told from it; tune --measure times a few.";
}

/// The fastest run that does without a schedule.
Nanoseconds baseline_of(const planner::SearchResult& result) {
  Nanoseconds baseline;
  for (const auto& candidate : result.baselines) {
    if (baseline.value == 0 || candidate.step < baseline) baseline = candidate.step;
  }
  return baseline;
}

std::vector<CandidateRow> ranked_rows(const planner::SearchResult& result) {
  std::vector<CandidateRow> rows;
  for (const auto& candidate : result.ranked)
    rows.push_back(
        {std::to_string(rows.size() + 1), &candidate, rows.empty() ? Ink::Green : Ink::Plain});
  for (const auto& candidate : result.baselines) rows.push_back({"base", &candidate, Ink::Dim});
  return rows;
}

std::vector<CandidateRow> front_rows(const planner::SearchResult& result) {
  std::vector<CandidateRow> rows;
  for (const auto& candidate : result.front) rows.push_back({"", &candidate, Ink::Plain});
  return rows;
}

}  // namespace

Profile load_profile(const std::string& path) {
  const Json document = parse_json(read_text(path), path);
  return read_profile(JsonCursor(document, path));
}

std::optional<Profile> profile_for(const Job& job, const std::optional<std::string>& flag) {
  if (flag) return load_profile(*flag);
  if (!job.profile_path.empty()) return load_profile(job.profile_path);
  return std::nullopt;
}

planner::SearchOptions watched(planner::SearchOptions options, Session& session) {
  const auto begin = std::chrono::steady_clock::now();
  options.progress = [&session, begin](const planner::SearchProgress& now) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    std::string line = std::string(now.phase) + " ... ";
    if (now.simulated > 0) {
      const auto rate =
          std::llround(static_cast<double>(now.simulated) / std::max(1e-3, spent.count()));
      line += std::to_string(now.simulated) + " simulated, " + std::to_string(now.left_out) +
              " left out, " + std::to_string(rate) + " a second";
    }
    if (now.best != nullptr) line += ", best so far " + format_duration(now.best->step);
    session.progress(line);
  };
  return options;
}

void while_showing(std::string_view what, Session& session, const std::function<void()>& work) {
  const auto show = [&] { session.progress(std::string(what) + " ..."); };
  show();
  planner::for_each_index(
      1, 1, [&](std::size_t) { work(); }, show);
  session.clear_progress();
}

planner::SearchResult search_with_progress(const Job& job, const std::optional<Profile>& profile,
                                           const planner::SearchOptions& options,
                                           Session& session) {
  auto result = planner::search(job, profile ? &*profile : nullptr, watched(options, session));
  session.clear_progress();
  return result;
}

planner::Explanation explain_with_progress(const Job& job, const std::optional<Profile>& profile,
                                           const planner::SearchOptions& options,
                                           const planner::SearchResult& found,
                                           const std::string& asked, Session& session) {
  auto explanation = planner::explain(job, profile ? &*profile : nullptr, options.cores, found,
                                      asked, watched(options, session));
  session.clear_progress();
  return explanation;
}

TunedForRun tune_for_run(const std::string& path, Session& session) {
  if (!path.ends_with(".json")) return {};
  const Json document = parse_json(read_text(path), path);
  const JsonCursor root(document, path);
  const auto schema = root.find("schema");
  if (!schema || !schema->value().is_string()) return {};
  if (schema->string().rfind("pipewright.job/", 0) != 0) return {};
  Job job = read_job(root);
  const bool stops = job.tuner_run_mode == TunerRunMode::TunerOnly;
  if (stops && job.tuner_save_path.empty()) {
    throw InputError(path, "/tuner_run_mode",
                     "\"tuner_only\" asks for a plan and no run: say where the plan goes by "
                     "\"tuner_save_path\", or use pipewright tune");
  }
  if (!stops && !job.tuner_load_path.empty()) return {};
  if (job.tuner_run_mode == TunerRunMode::RunOnly) {
    throw InputError(path, "/tuner_load_path",
                     "expected the plan to run, because tuner_run_mode is \"run_only\"");
  }
  session.phases().begin(exec::Phase::Plan);
  planner::SearchOptions options;
  options.only_executable = true;
  const auto profile = profile_for(job, std::nullopt);
  const planner::Costing costing = planner::settle_costing(job, profile ? &*profile : nullptr);
  session.note("costs: " + costing.why);
  const auto result = search_with_progress(job, profile, options, session);
  if (!result.best) {
    throw InputError(
        path, "",
        (result.not_executable ? "run can execute none of the plans that are possible."
                               : "no configuration is possible: " + result.nearest.front()) +
            std::string(" See pipewright tune ") + path);
  }
  session.note("tuned: " + planner::describe(result.ranked.front()));
  if (!job.tuner_save_path.empty()) {
    session.save(job.tuner_save_path, to_text(to_json(*result.best)));
    session.note("wrote " + job.tuner_save_path);
  }
  return {result.best, stops};
}

std::vector<traces::PageTable> search_tables(const planner::SearchResult& result) {
  const Nanoseconds baseline = baseline_of(result);
  std::vector<traces::PageTable> tables = {
      candidates_page_table("Ranked plans", ranked_rows(result), result, baseline)};
  if (!result.front.empty())
    tables.push_back(
        candidates_page_table("Less memory for more time", front_rows(result), result, baseline));
  return tables;
}

void print_search(const planner::SearchResult& result, Session& session, const std::string& drawn) {
  const int width = session.terminal().width;
  const auto print_line = [&](const std::string& line) { session.print(wrapped(line, width, 0)); };
  for (const std::string& sentence : result.nearest)
    print_line((&sentence == &result.nearest.front() ? "No configuration is possible: " : "- ") +
               sentence);
  const Nanoseconds baseline = baseline_of(result);
  std::vector<CandidateRow> rows = ranked_rows(result);
  session.print(candidates_text(rows, result, baseline, session.terminal()));
  if (!result.front.empty()) {
    session.print("\nless memory for more time:\n");
    rows = front_rows(result);
    session.print(candidates_text(rows, result, baseline, session.terminal()) + "\n");
  }
  const auto examples = by_sentence(result.examples);
  for (const auto& [reason, count] : by_sentence(result.pruned)) {
    std::string line = std::to_string(count) + " left out: " + reason;
    // Where nothing is possible the reader has to change the job.
    const auto example = examples.find(reason);
    if (!result.best && example != examples.end()) line += ", as in this case: " + example->second;
    print_line(line);
  }
  if (!result.intervals.empty()) print_line(intervals_text(result.intervals));
  if (!drawn.empty()) {
    print_line(drawn);
  } else if (result.drawn_best) {
    print_line("Row 1: " + drawn_steps_text(*result.drawn_best));
  }
  print_line(std::to_string(result.evaluated) + " of " + std::to_string(result.configurations) +
             " configurations simulated in " + format_duration(Nanoseconds(result.elapsed_ns)));
  if (result.synthesis) print_line(winners_text(*result.synthesis));
  if (!result.complete)
    print_line("The budget ran out: what was not looked at may hold a better plan.");
  if (!result.best) return;
  for (const auto& reason : result.best->tuner.reasons) print_line("- " + reason);
}

}  // namespace pipewright::tools
