// pipewright tune: from a job file to a plan.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/error.hpp"
#include "core/job.hpp"
#include "core/plan.hpp"
#include "core/profile.hpp"
#include "planner/search.hpp"
#include "tools/arguments.hpp"
#include "tools/commands.hpp"
#include "tools/exit_status.hpp"
#include "tools/figures.hpp"
#include "tools/session.hpp"
#include "tools/table.hpp"
#include "tools/tuning.hpp"

namespace pipewright::tools {
namespace {

Json fields_of(const planner::Candidate& candidate) {
  std::vector<int> layers;
  for (const StagePlan& stage : candidate.stages)
    layers.push_back(stage.end_layer - stage.first_layer);
  return {{"schedule", candidate.schedule},
          {"pp", candidate.ranks},
          {"vpp", candidate.chunks},
          {"micro_batches", candidate.micro_batches},
          {"micro_batch_size", candidate.micro_batch_size},
          {"partition", candidate.partition},
          {"layers_of_stage", layers},
          {"step_ns", candidate.step.value},
          {"bubble_ratio", candidate.bubble_ratio},
          {"peak_activations", candidate.peak_activations},
          {"peak_bytes", candidate.peak_bytes.value}};
}

Json result_fields(const planner::SearchResult& result) {
  Json ranked = Json::array(), baselines = Json::array(), pruned = Json::object();
  for (const auto& candidate : result.ranked) ranked.push_back(fields_of(candidate));
  for (const auto& candidate : result.baselines) baselines.push_back(fields_of(candidate));
  for (const auto& [reason, count] : result.pruned) pruned[reason] = count;
  return {{"best", result.best ? fields_of(result.ranked.front()) : Json(nullptr)},
          {"ranked", ranked},
          {"baselines", baselines},
          {"pruned", pruned},
          {"evaluated", result.evaluated},
          {"elapsed_ns", result.elapsed_ns}};
}

int run(const Arguments& arguments, Session& session) {
  const std::string& path = arguments.positionals().front();
  const Job job = load_job(path);
  const auto profile = profile_for(job, arguments.text("--profile"));
  planner::SearchOptions options;
  options.keep = arguments.integer_or("--top", 1, 1000, 10);
  options.threads = arguments.integer_or("--threads", 0, 1024, 0);
  const planner::SearchResult result = search_with_progress(job, profile, options, session);
  if (session.json()) session.print_result(result_fields(result));
  if (!session.json()) print_search(result, session);
  if (!result.best) {
    session.note("no configuration is possible; the reasons are above");
    return kAnswerIsNo;
  }
  const std::string out = arguments.text_or("--out", job.tuner_save_path);
  if (!out.empty()) {
    session.save(out, to_text(to_json(*result.best)));
    session.note("wrote " + out + "; next: pipewright simulate " + out);
  } else {
    session.note("next: pipewright tune " + path + " -o plan.json   (writes the best plan)");
  }
  return kDone;
}

}  // namespace

Command tune_command() {
  Command command;
  command.name = "tune";
  command.summary = "search mesh, partition, micro-batches and schedule; write the best plan";
  command.description =
      "Every configuration that the job allows is lowered and simulated; the table shows the best "
      "ones, and the baseline (the schedule naive, on several ranks and on one). Costs come from "
      "the profile where there is one, else from operation counts and the device's rate. Exit "
      "status 1: no configuration is possible.";
  command.examples = {
      {"tune job.json -o plan.json", "the ranked table, and the best plan as a file"},
      {"tune job.json --profile profile.json --json", "with measured costs, for a script"},
  };
  command.positionals = {{.name = "JOB",
                          .help = "a job.json: model, cluster, global batch, strategy",
                          .least = 1,
                          .most = 1}};
  command.flags = {
      {.group = "Search",
       .name = "--profile",
       .argument = "FILE",
       .help = "measured costs, instead of the job's own profile",
       .is_file = true},
      {.group = "Search",
       .name = "--threads",
       .argument = "N",
       .help = "threads to search with; 0: all cores"},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "where the best plan goes, instead of the job's tuner_save_path",
       .short_name = 'o',
       .is_file = true},
      {.group = "Output", .name = "--top", .argument = "K", .help = "rows of the table"},
  };
  command.run = run;
  return command;
}

}  // namespace pipewright::tools
