#include "tools/commands/analyze_timers.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"
#include "tools/cli/command_line.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/step.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/trace_files.hpp"
#include "traces/logs/megatron_timers.hpp"
#include "traces/logs/rank_times.hpp"

namespace pipewright::tools {
namespace {

using traces::RankTimes;
using traces::StageTimes;
using traces::TimedIterations;

constexpr double kWorthSaying = 0.01;

/// What was asked of a log, and what it says.
struct ReadLog {
  std::string file;
  std::size_t prints = 0;
  TimedIterations print;  // that one of them
  std::vector<RankTimes> ranks;
  std::vector<StageTimes> stages;
  std::int64_t longest_passes = 0;
};

void refuse_others(const Arguments& arguments) {
  constexpr std::array<std::string_view, 6> kAllowed = {"--schedule", "--pp",    "--micro-batches",
                                                        "--vpp",      "--param", "--step"};
  std::vector<Flag> others = analyze_command().flags;
  std::erase_if(others, [&](const Flag& flag) {
    return std::find(kAllowed.begin(), kAllowed.end(), flag.name) != kAllowed.end();
  });
  refuse_flags(arguments, others, "does not go with a log, which has no timeline");
}

std::size_t chosen_print(const std::vector<TimedIterations>& prints, const Arguments& arguments) {
  const std::optional<int> wanted = step_number(arguments);
  if (!wanted) return traces::median_print(prints);
  std::string numbers;
  for (std::size_t i = 0; i < prints.size(); ++i) {
    if (prints[i].last == *wanted) return i;
    if (prints[i].last) numbers += (numbers.empty() ? "" : ", ") + std::to_string(*prints[i].last);
  }
  throw InputError(arguments.positionals().front(), "",
                   "--step " + std::to_string(*wanted) + ": timers are printed after iteration " +
                       (numbers.empty() ? "?" : numbers));
}

ReadLog read_log(const std::string& text, const Arguments& arguments) {
  ReadLog log;
  log.file = arguments.positionals().front();
  const auto prints = traces::read_megatron_timers(text, log.file);
  log.prints = prints.size();
  log.print = prints[chosen_print(prints, arguments)];
  log.ranks = traces::rank_times_of(log.print, log.file);
  const int ranks = static_cast<int>(log.ranks.size());
  const int stages = arguments.integer_or("--pp", 1, traces::kMostTimedRanks, 1);
  if (ranks % stages != 0) {
    throw InputError("--pp " + std::to_string(stages) + " does not divide the " +
                     std::to_string(ranks) + " ranks of " + log.file);
  }
  log.stages = traces::stage_times_of(log.ranks, stages);
  for (const RankTimes& rank : log.ranks)
    log.longest_passes = std::max(log.longest_passes, rank.passes);
  return log;
}

/// A schedule with the costs of the log.
struct Replay {
  std::vector<std::string> words;  // of simulate
  Step step;
  std::vector<std::int64_t> forward, backward;  // of each rank's stages
};

/// The values of all ranks, so many times over.
std::string list_text(const std::vector<std::int64_t>& values, int times) {
  if (std::count(values.begin(), values.end(), values.front()) == std::ssize(values))
    return std::to_string(values.front());
  std::string text;
  for (int time = 0; time < times; ++time) {
    for (const std::int64_t value : values)
      text += (text.empty() ? "" : ":") + std::to_string(value);
  }
  return text;
}

/// A rank's stages take the same: its timers do not tell them apart.
std::optional<Replay> replayed(const ReadLog& log, const Arguments& arguments, Session& session) {
  const auto micro_batches = arguments.text("--micro-batches");
  if (!micro_batches) return std::nullopt;
  const int count = arguments.integer_or("--micro-batches", 1, 1 << 20, 1);
  const int chunks = arguments.integer_or("--vpp", 1, 1 << 10, 1);
  Replay replay;
  for (const StageTimes& stage : log.stages) {
    replay.forward.push_back(stage.median.forward / (count * chunks));
    replay.backward.push_back(stage.median.backward / (count * chunks));
  }
  replay.words = {"--schedule",
                  arguments.text_or("--schedule", chunks > 1 ? "interleaved" : "1f1b"),
                  "--pp",
                  std::to_string(log.stages.size()),
                  "--micro-batches",
                  *micro_batches};
  if (chunks > 1) replay.words.insert(replay.words.end(), {"--vpp", std::to_string(chunks)});
  for (const std::string& value : arguments.all("--param"))
    replay.words.insert(replay.words.end(), {"--param", value});
  replay.words.insert(replay.words.end(),
                      {"--cost", "F=" + list_text(replay.forward, chunks) +
                                     ",B=" + list_text(replay.backward, chunks)});
  const Arguments as_typed = parse_arguments(analyze_command(), replay.words);
  replay.step = simulated_step(read_subject(as_typed, Purpose::Predict, session));
  return replay;
}

Json times_fields(const RankTimes& times) {
  return {{"passes_ns", times.passes},      {"forward_ns", times.forward},
          {"backward_ns", times.backward},  {"messages_ns", times.messages},
          {"sums_ns", times.sums},          {"rest_ns", times.rest()},
          {"optimizer_ns", times.optimizer}};
}

Json log_fields(const ReadLog& log, const std::optional<Replay>& replay) {
  Json timers = {{"prints", log.prints}, {"passes_ns", log.longest_passes}};
  if (log.print.last) timers["iteration"] = *log.print.last;
  if (log.print.step_ns) timers["step_ns"] = *log.print.step_ns;
  for (std::size_t s = 0; s < log.stages.size(); ++s) {
    Json stage = times_fields(log.stages[s].median);
    stage["stage"] = s;
    stage["ranks"] = log.stages[s].ranks;
    stage["slowest_rank"] = log.stages[s].slowest;
    stage["above_median"] = log.stages[s].above;
    timers["stages"].push_back(std::move(stage));
  }
  for (std::size_t r = 0; r < log.ranks.size(); ++r) {
    Json rank = times_fields(log.ranks[r]);
    rank["rank"] = r;
    timers["ranks"].push_back(std::move(rank));
  }
  if (replay) {
    timers["costs"] = {{"F_ns", replay->forward}, {"B_ns", replay->backward}};
    timers["simulated"] = figures_fields(replay->step.figures);
  }
  return {{"timers", std::move(timers)}};
}

std::string time_or_dash(std::int64_t ns) {
  return ns == 0 ? "-" : format_duration(Nanoseconds(ns));
}

std::string table_text(const ReadLog& log, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"stage", Align::Right},
               {"ranks"},
               {"forward", Align::Right},
               {"backward", Align::Right},
               {"messages", Align::Right},
               {"sums", Align::Right},
               {"rest", Align::Right},
               {"computing", Align::Right}});
  for (std::size_t s = 0; s < log.stages.size(); ++s) {
    const auto& [ranks, median, slowest, above] = log.stages[s];
    const std::string first = std::to_string(ranks.front());
    const double share =
        static_cast<double>(median.computing()) / static_cast<double>(log.longest_passes);
    table.add({std::to_string(s),
               ranks.size() == 1 ? first : first + " to " + std::to_string(ranks.back()),
               time_or_dash(median.forward), time_or_dash(median.backward),
               time_or_dash(median.messages), time_or_dash(median.sums),
               time_or_dash(median.rest()), percent_text(share)});
  }
  return table.text(terminal);
}

/// Who takes longer than others: of a stage's ranks, and of the stages.
std::string excess_text(const ReadLog& log) {
  std::string text;
  double sum = 0;
  std::size_t longest = 0, uneven = 0;
  for (std::size_t s = 0; s < log.stages.size(); ++s) {
    sum += static_cast<double>(log.stages[s].median.computing());
    if (log.stages[s].median.computing() > log.stages[longest].median.computing()) longest = s;
    if (log.stages[s].above > log.stages[uneven].above) uneven = s;
  }
  const StageTimes& of_rank = log.stages[uneven];
  if (of_rank.above > kWorthSaying) {
    text += "rank " + std::to_string(of_rank.slowest) + " computes " + percent_text(of_rank.above) +
            " longer than the median of " + (log.stages.size() > 1 ? "its stage" : "all ranks") +
            "\n";
  }
  const double above = static_cast<double>(log.stages[longest].median.computing()) *
                           static_cast<double>(log.stages.size()) / sum -
                       1;
  if (above > kWorthSaying) {
    text += "stage " + std::to_string(longest) + " computes " + percent_text(above) +
            " longer than the mean of the stages\n";
  }
  return text;
}

std::string replay_text(const ReadLog& log, const Replay& replay) {
  const std::int64_t makespan = replay.step.figures.makespan_ns;
  const double off = static_cast<double>(makespan) / static_cast<double>(log.longest_passes) - 1;
  return replay.words[1] + " with these costs takes " + format_duration(Nanoseconds(makespan)) +
         ", " + signed_percent_text(off) + " from the passes; its own bubble is " +
         percent_text(replay.step.figures.bubble_ratio) +
         ", and messages, sums and the host take nothing in it:\n";
}

/// On a line of its own, to be copied.
std::string command_text(const Replay& replay) {
  std::string text = "  pipewright simulate";
  for (const std::string& word : replay.words) text += " " + word;
  return text + "\n";
}

void print_log(const ReadLog& log, const std::optional<Replay>& replay, const Arguments& arguments,
               Session& session) {
  const Terminal& terminal = session.terminal();
  std::string title = log.file + ": Megatron-LM's timers";
  if (log.print.last) title += " after iteration " + std::to_string(*log.print.last);
  if (log.prints > 1 && !arguments.has("--step"))
    title += ", the median of " + std::to_string(log.prints) + " prints";
  session.print(painted(terminal, Ink::Bold, wrapped(title, terminal.width, 0)));
  std::string line = "passes " + time_or_dash(log.longest_passes);
  if (log.print.step_ns) line = "step " + time_or_dash(*log.print.step_ns) + "   " + line;
  session.print(line + "\n");
  session.print(table_text(log, terminal));
  session.print(wrapped(excess_text(log), terminal.width, 0));
  if (replay) {
    session.print(wrapped(replay_text(log, *replay), terminal.width, 0));
    session.print(command_text(*replay));
  }
  if (log.stages.size() == 1 && log.ranks.size() > 1) {
    session.note("--pp P tells the ranks apart by stage");
  } else if (!replay) {
    session.note("--micro-batches M simulates the schedule with these costs");
  }
}

}  // namespace

std::optional<std::string> timer_log(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return std::nullopt;
  if (path.ends_with(".json") || path.ends_with(".csv") || is_trace(path)) return std::nullopt;
  std::string text = read_text(path, traces::kMostLogBytes);
  return traces::has_megatron_timers(text) ? std::optional(std::move(text)) : std::nullopt;
}

int analyze_timers(const std::string& log, const Arguments& arguments, Session& session) {
  if (arguments.positionals().size() > 1) {
    throw InputError(arguments.positionals()[1], "",
                     "is one file too many: the log of the last rank has the times of all");
  }
  refuse_others(arguments);
  const ReadLog read = read_log(log, arguments);
  const std::optional<Replay> replay = replayed(read, arguments, session);
  if (session.json()) {
    session.print_result(log_fields(read, replay));
  } else {
    print_log(read, replay, arguments, session);
  }
  return kDone;
}

}  // namespace pipewright::tools
