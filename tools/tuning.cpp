#include "tools/tuning.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "tools/figures.hpp"
#include "tools/table.hpp"

namespace pipewright::tools {
namespace {

std::string layers_text(const planner::Candidate& candidate) {
  std::string text;
  for (const StagePlan& stage : candidate.stages) {
    text += (text.empty() ? "" : "+") + std::to_string(stage.end_layer - stage.first_layer);
  }
  return text;
}

/// "4", or of replicas "2 x 4".
std::string ranks_text(const planner::Candidate& candidate) {
  const std::string ranks = std::to_string(candidate.ranks);
  return candidate.replicas > 1 ? std::to_string(candidate.replicas) + " x " + ranks : ranks;
}

std::string times_text(double ratio) {
  const auto hundredths = static_cast<std::int64_t>(ratio * 100 + 0.5);
  std::string text = std::to_string(hundredths / 100) + ".";
  return text + (hundredths % 100 < 10 ? "0" : "") + std::to_string(hundredths % 100) + "x";
}

void add_row(Table& table, const std::string& place, const planner::Candidate& candidate,
             Nanoseconds baseline, Ink ink) {
  const double gain = candidate.step.value == 0 ? 1.0
                                                : static_cast<double>(baseline.value) /
                                                      static_cast<double>(candidate.step.value);
  table.add(
      {place, candidate.schedule, ranks_text(candidate), std::to_string(candidate.chunks),
       std::to_string(candidate.micro_batches) + " x " + std::to_string(candidate.micro_batch_size),
       format_duration(candidate.step), percent_text(candidate.bubble_ratio),
       format_bytes(candidate.peak_bytes), baseline.value > 0 ? times_text(gain) : "",
       layers_text(candidate)},
      ink);
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

planner::SearchResult search_with_progress(const Job& job, const std::optional<Profile>& profile,
                                           const planner::SearchOptions& options,
                                           Session& session) {
  session.progress("searching ...");
  auto result = planner::search(job, profile ? &*profile : nullptr, options);
  session.clear_progress();
  return result;
}

std::optional<Plan> tune_for_run(const std::string& path, Session& session) {
  if (!path.ends_with(".json")) return std::nullopt;
  const Json document = parse_json(read_text(path), path);
  const JsonCursor root(document, path);
  const auto schema = root.find("schema");
  if (!schema || !schema->value().is_string()) return std::nullopt;
  if (schema->string().rfind("pipewright.job/", 0) != 0) return std::nullopt;
  const Job job = read_job(root);
  if (job.tuner_run_mode == TunerRunMode::TunerOnly) {
    throw InputError(path, "/tuner_run_mode",
                     "\"tuner_only\" asks for a plan and no run; use pipewright tune, or say "
                     "\"tuner_and_run\"");
  }
  if (!job.tuner_load_path.empty()) return std::nullopt;
  if (job.tuner_run_mode == TunerRunMode::RunOnly) {
    throw InputError(path, "/tuner_load_path",
                     "expected the plan to run, because tuner_run_mode is \"run_only\"");
  }
  const auto result = search_with_progress(job, profile_for(job, std::nullopt), {}, session);
  if (!result.best) {
    throw InputError(path, "", "no configuration is possible; see pipewright tune " + path);
  }
  session.note("tuned: " + planner::describe(result.ranked.front()));
  if (!job.tuner_save_path.empty()) {
    session.save(job.tuner_save_path, to_text(to_json(*result.best)));
    session.note("wrote " + job.tuner_save_path);
  }
  return result.best;
}

void print_search(const planner::SearchResult& result, Session& session) {
  using Align = Table::Align;
  Table table({{"#", Align::Right},
               {"schedule"},
               {"pp", Align::Right},
               {"vpp", Align::Right},
               {"batches"},
               {"step", Align::Right},
               {"bubble", Align::Right},
               {"memory", Align::Right},
               {"gain", Align::Right},
               {"layers"}});
  // The baseline is the fastest run that does without a schedule.
  Nanoseconds baseline;
  for (const auto& candidate : result.baselines) {
    if (baseline.value == 0 || candidate.step < baseline) baseline = candidate.step;
  }
  int place = 0;
  for (const auto& candidate : result.ranked) {
    ++place;
    add_row(table, std::to_string(place), candidate, baseline,
            place == 1 ? Ink::Green : Ink::Plain);
  }
  for (const auto& candidate : result.baselines)
    add_row(table, "base", candidate, baseline, Ink::Dim);
  session.print(table.text(session.terminal()));
  for (const auto& [reason, count] : result.pruned) {
    session.print(
        wrapped(std::to_string(count) + " left out: " + reason, session.terminal().width, 0));
  }
  session.print(std::to_string(result.evaluated) + " configurations simulated in " +
                format_duration(Nanoseconds(result.elapsed_ns)) + "\n");
  if (!result.best) return;
  for (const auto& reason : result.best->tuner.reasons) {
    session.print(wrapped("- " + reason, session.terminal().width, 0));
  }
}

}  // namespace pipewright::tools
