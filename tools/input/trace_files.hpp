// The traces that a command was given: one file or many, of ranks and steps, as one step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/arguments.hpp"
#include "traces/chrome/join_ranks.hpp"

namespace pipewright::tools {

/// Traces have "traceEvents" or are a bare list of them, are a database, or are named like
/// Chakra's; plans and jobs have "schema".
bool is_trace(const std::string& path);

/// A step by the number that its trace gives it, and what it took.
struct TracedStep {
  int number = 0;
  std::int64_t makespan_ns = 0;
};

struct ChosenStep {
  traces::JoinedTrace joined;
  std::size_t files = 0;
  std::vector<TracedStep> steps;  // all that the traces hold
  bool asked_for = false;         // else the median
};

/// By their names alone: Chakra's files of different ranks, none of which can be read by itself.
bool are_of_one_job(const std::vector<std::string>& paths);

using TraceFiles = std::vector<std::vector<traces::TraceTimeline>>;  // the steps of each

/// `paths` are files, or folders with the files of the ranks. Throws InputError for a run that got
/// stuck, and as read_trace_steps().
TraceFiles read_trace_files(const std::vector<std::string>& paths);

/// Of several steps the one with this number, or without one the step with the median makespan (of
/// an even number the smaller of the middle two, of equal times the earlier). Throws InputError for
/// a number that the traces do not hold, and as join_steps().
ChosenStep choose_step(TraceFiles files, std::optional<int> number);

/// --step, and what it says.
Flag step_flag();
std::optional<int> step_number(const Arguments& arguments);

}  // namespace pipewright::tools
