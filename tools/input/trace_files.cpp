#include "tools/input/trace_files.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/error.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/unpacked_stream.hpp"
#include "traces/events/chakra.hpp"
#include "traces/events/sqlite.hpp"

namespace pipewright::tools {
namespace {

bool is_folder(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown);
}

/// What the text of a file looks like, read until that is clear and no more than a piece at a time.
struct Looks {
  bool has_events = false;  // "traceEvents", or a bare list
  bool has_schema = false;
  bool is_host_trace = false;  // of PyTorch's ExecutionTraceObserver
};

Looks looks_of(const std::string& path) {
  constexpr std::size_t kPiece = 1 << 16, kLongestWord = 16;
  traces::UnpackedStream stream(path, traces::kMostTraceBytes);
  Looks looks;
  std::string text, piece(kPiece, '\0');
  bool has_begun = false;
  while (!looks.has_events && !looks.is_host_trace) {
    const auto taken = stream.sgetn(piece.data(), static_cast<std::streamsize>(piece.size()));
    if (taken <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(taken));
    const auto first = text.find_first_not_of(" \t\r\n");
    if (!has_begun && first != text.npos) {
      has_begun = true;
      looks.has_events = text[first] == '[';
    }
    looks.has_events |= text.find("\"traceEvents\"") != text.npos;
    looks.has_schema |= text.find("\"schema\"") != text.npos;
    looks.is_host_trace |= looks.has_schema && text.find("-chakra.") != text.npos;
    text.erase(0, text.size() - std::min(text.size(), kLongestWord));
  }
  return looks;
}

/// The traces of a folder, by name; anything else as it is.
std::vector<std::string> files_of(const std::string& path) {
  if (!is_folder(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string file = entry.path().string();
    if (!entry.is_regular_file()) continue;
    if (file.ends_with(".json.gz") || traces::is_chakra_file(file) ||
        traces::is_sqlite_file(file) || (file.ends_with(".json") && looks_of(file).has_events)) {
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty())
    throw InputError(path, "",
                     "has no trace in it, neither .json nor .json.gz nor .et nor .sqlite");
  return files;
}

/// PyTorch's host execution traces are Chakra's by their schema, and tell no times.
void refuse_host_trace(const std::string& file) {
  const bool is_json = file.ends_with(".json") || file.ends_with(".json.gz");
  if (!is_json || !looks_of(file).is_host_trace) return;
  throw InputError(file, "/schema",
                   "is a host execution trace of PyTorch, which has operators and no times; give "
                   "what the profiler wrote of the same steps (export_chrome_trace), or the .et "
                   "that chakra_trace_link and chakra_converter make of both");
}

void refuse_stuck(const traces::TraceTimeline& trace) {
  for (const auto& rank : trace.ranks) {
    for (const auto& span : rank.spans) {
      if (span.kind == traces::SpanKind::Stuck) {
        throw InputError(trace.source, "rank " + std::to_string(rank.rank),
                         "the trace is of a run that got stuck at " + to_string(span.cell) +
                             "; use pipewright check on its order");
      }
    }
  }
}

std::size_t median_of(const std::vector<TracedStep>& steps) {
  std::vector<std::size_t> by_time(steps.size());
  for (std::size_t i = 0; i < by_time.size(); ++i) by_time[i] = i;
  std::stable_sort(by_time.begin(), by_time.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].makespan_ns < steps[b].makespan_ns;
  });
  return by_time[(by_time.size() - 1) / 2];
}

std::size_t place_of(int number, const std::vector<TracedStep>& steps, const std::string& file) {
  std::string numbers;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].number == number) return i;
    numbers += (i == 0 ? "" : ", ") + std::to_string(steps[i].number);
  }
  throw InputError(file, "",
                   "--step " + std::to_string(number) + ": the trace holds " +
                       (steps.size() == 1 ? "only step " : "the steps ") + numbers);
}

}  // namespace

bool is_trace(const std::string& path) {
  if (path == "-" || path.ends_with(".gz")) return true;
  if (is_folder(path) || traces::is_chakra_file(path) || traces::is_sqlite_file(path)) return true;
  if (!path.ends_with(".json")) return false;
  const Looks looks = looks_of(path);
  return looks.has_events || looks.is_host_trace ||
         (!looks.has_schema && path.find("trace") != path.npos);
}

bool are_of_one_job(const std::vector<std::string>& paths) {
  std::set<std::optional<int>> ranks;
  return std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return traces::is_chakra_file(path) && ranks.insert(traces::rank_of_chakra_file(path)).second;
  });
}

TraceFiles read_trace_files(const std::vector<std::string>& paths) {
  TraceFiles files;
  std::vector<std::string> of_chakra;
  for (const std::string& path : paths) {
    for (const std::string& file : files_of(path)) {
      if (traces::is_chakra_file(file)) {
        of_chakra.push_back(file);
        continue;
      }
      refuse_host_trace(file);
      files.push_back(traces::read_trace_steps(file));
      for (const traces::TraceTimeline& step : files.back()) refuse_stuck(step);
    }
  }
  if (!of_chakra.empty()) {
    for (auto& steps : traces::read_chakra_steps(of_chakra)) files.push_back(std::move(steps));
  }
  return files;
}

ChosenStep choose_step(TraceFiles files, std::optional<int> number) {
  ChosenStep chosen;
  chosen.files = files.size();
  chosen.asked_for = number.has_value();
  std::vector<traces::JoinedTrace> joined = traces::join_steps(std::move(files));
  for (const traces::JoinedTrace& step : joined)
    chosen.steps.push_back({step.trace.step, step.trace.makespan_ns});
  const std::size_t place = number ? place_of(*number, chosen.steps, joined.front().trace.source)
                                   : median_of(chosen.steps);
  chosen.joined = std::move(joined[place]);
  return chosen;
}

Flag step_flag() {
  return {.group = "Trace",
          .name = "--step",
          .argument = "N",
          .help =
              "which of several steps, by the number of PyTorch's ProfilerStep#N, or counted "
              "from 0 (the one with the median duration)"};
}

std::optional<int> step_number(const Arguments& arguments) {
  constexpr int kMostSteps = 1'000'000'000;
  const auto given = arguments.integer("--step", 0, kMostSteps);
  return given ? std::optional(static_cast<int>(*given)) : std::nullopt;
}

}  // namespace pipewright::tools
