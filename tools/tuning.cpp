#include "tools/tuning.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.hpp"
#include "planner/number_text.hpp"
#include "planner/stage_replicas.hpp"
#include "tools/figures.hpp"
#include "tools/table.hpp"

namespace pipewright::tools {
namespace {

/// "4+3+3+2"; from four stages alike on "4 + 30x3 + 4".
std::string layers_text(const planner::Candidate& candidate) {
  constexpr int kLeastRun = 4;
  std::vector<std::pair<int, int>> runs;  // layers of a stage, how many such stages
  for (const StagePlan& stage : candidate.stages) {
    const int layers = stage.end_layer - stage.first_layer;
    if (runs.empty() || runs.back().first != layers) runs.emplace_back(layers, 0);
    ++runs.back().second;
  }
  const bool is_short =
      std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run.second < kLeastRun; });
  std::string text;
  const auto add = [&](const std::string& part) {
    text += (text.empty() ? "" : is_short ? "+" : " + ") + part;
  };
  for (const auto& [layers, stages] : runs) {
    if (stages >= kLeastRun) {
      add(std::to_string(stages) + "x" + std::to_string(layers));
    } else {
      for (int s = 0; s < stages; ++s) add(std::to_string(layers));
    }
  }
  return text;
}

/// "1f1b-rr 2,1,1", of many stages only how many there are.
std::string schedule_text(const planner::Candidate& candidate) {
  constexpr std::size_t kMostLetters = 15;
  const std::vector<int>& counts = candidate.parallel.stage_replicas;
  if (counts.empty()) return candidate.schedule;
  const std::string text = planner::replicas_text(counts);
  return candidate.schedule + " " +
         (text.size() <= kMostLetters ? text : std::to_string(counts.size()) + " stages");
}

/// "by stage: full on 0-2, none on 3"; of many runs of stages only how many there are of each.
std::string by_stage_text(const std::vector<LayerRecompute>& of_stage) {
  constexpr std::size_t kMostLetters = 40;
  std::string text = describe_recompute(of_stage);
  if (text.size() > kMostLetters) {
    text.clear();
    for (const auto kind :
         {LayerRecompute::Whole, LayerRecompute::Attention, LayerRecompute::None}) {
      const auto count = std::count(of_stage.begin(), of_stage.end(), kind);
      if (count == 0) continue;
      text += (text.empty() ? "" : ", ") + std::string(to_string(kind)) + " on " +
              std::to_string(count);
    }
    text += " of " + std::to_string(of_stage.size());
  }
  return "by stage: " + text;
}

/// "selective, sp, ZeRO 1": what else a row divides or saves; "" for nothing.
std::string savings_text(const planner::ParallelSetup& parallel) {
  std::string text;
  const auto add = [&](bool is_there, const std::string& part) {
    if (is_there) text += (text.empty() ? "" : ", ") + part;
  };
  add(parallel.context > 1, "cp " + std::to_string(parallel.context));
  add(parallel.experts > 1, "ep " + std::to_string(parallel.experts));
  add(parallel.zero > 0 && parallel.data > 1, "ZeRO " + std::to_string(parallel.zero));
  add(parallel.sequence_parallel, "sp");
  add(parallel.recompute_by_stage, by_stage_text(parallel.recompute_of_stage));
  add(parallel.recompute == LayerRecompute::Whole, "full recompute");
  add(parallel.recompute == LayerRecompute::Attention, "selective recompute");
  add(parallel.order == planner::RankOrder::DataOutermost,
      "order " + std::string(name_of(parallel.order)));
  add(!parallel.node_order.empty(), "nodes " + to_text(parallel.node_order));
  return text;
}

/// Columns that say nothing in any row are left out.
struct Columns {
  bool tensor = false, data = false, savings = false;

  explicit Columns(const planner::SearchResult& result) {
    for (const auto* list : {&result.ranked, &result.baselines, &result.front}) {
      for (const planner::Candidate& row : *list) {
        tensor = tensor || row.parallel.tensor > 1;
        data = data || row.parallel.data > 1;
        savings = savings || !savings_text(row.parallel).empty();
      }
    }
  }

  Table table() const {
    using Align = Table::Align;
    std::vector<Table::Column> columns{{"#", Align::Right}, {"schedule"}};
    if (tensor) columns.push_back({"tp", Align::Right});
    columns.push_back({"pp", Align::Right});
    if (data) columns.push_back({"dp", Align::Right});
    for (const char* name : {"vpp", "batches", "step", "bubble", "memory", "gain"})
      columns.push_back({name, name == std::string_view("batches") ? Align::Left : Align::Right});
    if (savings) columns.push_back({"with"});
    columns.push_back({"layers"});
    return Table(columns);
  }
};

std::string times_text(double ratio) {
  const auto hundredths = static_cast<std::int64_t>(ratio * 100 + 0.5);
  std::string text = std::to_string(hundredths / 100) + ".";
  return text + (hundredths % 100 < 10 ? "0" : "") + std::to_string(hundredths % 100) + "x";
}

void add_row(Table& table, const Columns& columns, const std::string& place,
             const planner::Candidate& candidate, Nanoseconds baseline, Ink ink) {
  const double gain = candidate.step.value == 0 ? 1.0
                                                : static_cast<double>(baseline.value) /
                                                      static_cast<double>(candidate.step.value);
  const planner::ParallelSetup& parallel = candidate.parallel;
  std::vector<std::string> cells{place, schedule_text(candidate)};
  if (columns.tensor) cells.push_back(std::to_string(parallel.tensor));
  cells.push_back(std::to_string(parallel.pipeline));
  if (columns.data) cells.push_back(std::to_string(parallel.data));
  cells.push_back(std::to_string(parallel.chunks));
  cells.push_back(std::to_string(parallel.micro_batches) + " x " +
                  std::to_string(parallel.micro_batch_size));
  cells.push_back(format_duration(candidate.step));
  cells.push_back(percent_text(candidate.bubble_ratio));
  cells.push_back(format_bytes(candidate.peak_bytes));
  cells.push_back(baseline.value > 0 ? times_text(gain) : "");
  if (columns.savings) cells.push_back(savings_text(parallel));
  cells.push_back(layers_text(candidate));
  table.add(cells, ink);
}

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
  planner::SearchOptions watched = options;
  const auto begin = std::chrono::steady_clock::now();
  watched.progress = [&](const planner::SearchProgress& now) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    const auto rate = std::llround(static_cast<double>(now.simulated) / spent.count());
    std::string line = "searching: " + std::to_string(now.simulated) + " simulated, " +
                       std::to_string(now.left_out) + " left out, " + std::to_string(rate) +
                       " a second";
    if (now.best != nullptr) line += ", best so far " + format_duration(now.best->step);
    session.progress(line);
  };
  auto result = planner::search(job, profile ? &*profile : nullptr, watched);
  session.clear_progress();
  return result;
}

TunedForRun tune_for_run(const std::string& path, Session& session) {
  if (!path.ends_with(".json")) return {};
  const Json document = parse_json(read_text(path), path);
  const JsonCursor root(document, path);
  const auto schema = root.find("schema");
  if (!schema || !schema->value().is_string()) return {};
  if (schema->string().rfind("pipewright.job/", 0) != 0) return {};
  const Job job = read_job(root);
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
  const auto result = search_with_progress(job, profile_for(job, std::nullopt), options, session);
  if (!result.best) {
    throw InputError(path, "",
                     (result.not_executable ? "the executor has none of the plans that are possible"
                                            : "no configuration is possible") +
                         std::string("; see pipewright tune ") + path);
  }
  session.note("tuned: " + planner::describe(result.ranked.front()));
  if (!job.tuner_save_path.empty()) {
    session.save(job.tuner_save_path, to_text(to_json(*result.best)));
    session.note("wrote " + job.tuner_save_path);
  }
  return {result.best, stops};
}

void print_search(const planner::SearchResult& result, Session& session) {
  const Columns columns(result);
  // The baseline is the fastest run that does without a schedule.
  Nanoseconds baseline;
  for (const auto& candidate : result.baselines) {
    if (baseline.value == 0 || candidate.step < baseline) baseline = candidate.step;
  }
  Table table = columns.table();
  int place = 0;
  for (const auto& candidate : result.ranked) {
    ++place;
    add_row(table, columns, std::to_string(place), candidate, baseline,
            place == 1 ? Ink::Green : Ink::Plain);
  }
  for (const auto& candidate : result.baselines)
    add_row(table, columns, "base", candidate, baseline, Ink::Dim);
  if (!result.ranked.empty() || !result.baselines.empty())
    session.print(table.text(session.terminal()));
  if (!result.front.empty()) {
    session.print("\nless memory for more time:\n");
    Table front = columns.table();
    for (const auto& candidate : result.front)
      add_row(front, columns, "", candidate, baseline, Ink::Plain);
    session.print(front.text(session.terminal()) + "\n");
  }
  for (const auto& [reason, count] : result.pruned) {
    std::string line = std::to_string(count) + " left out: " + reason;
    // Where nothing is possible the reader has to change the job.
    const auto example = result.examples.find(reason);
    if (!result.best && example != result.examples.end())
      line += ", as in this case: " + example->second;
    session.print(wrapped(line, session.terminal().width, 0));
  }
  session.print(std::to_string(result.evaluated) + " of " + std::to_string(result.configurations) +
                " configurations simulated in " + format_duration(Nanoseconds(result.elapsed_ns)) +
                "\n");
  if (result.synthesis) session.print(winners_text(*result.synthesis) + "\n");
  if (!result.complete)
    session.print("The budget ran out: what was not looked at may hold a better plan.\n");
  if (!result.best) return;
  for (const auto& reason : result.best->tuner.reasons) {
    session.print(wrapped("- " + reason, session.terminal().width, 0));
  }
}

}  // namespace pipewright::tools
