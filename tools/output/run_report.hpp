// A run that did not finish: the report over all ranks, on stdout, in --json and in --report FILE;
// and one that diverged.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "core/program/program.hpp"
#include "exec/runtime/runtime.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// What --report writes: "schema", "outcome", "step", "failure", "verdict", "cycle", "problems",
/// "ranks". `most_recent`: entries of the flight recorder a rank, the last ones.
Json run_report_fields(const Program& program, const exec::RunResult& result,
                       std::size_t most_recent);
/// A line a rank: its state, for how long, what it finished last and what it waits for.
std::string run_report_text(const Program& program, const exec::RunResult& result,
                            const Terminal& terminal);

/// Prints the report, then writes what --report, --trace and --svg ask for.
void show_unfinished(const Arguments& arguments, const Subject& subject,
                     const exec::RunResult& result, Session& session);
/// Prints a diverged run's steps, the last of them the one that was not finite, and writes what
/// --trace and --svg ask for. `checkpoint`: the last one that this run has saved; "" for none.
void show_diverged(const Arguments& arguments, const Subject& subject,
                   const exec::RunResult& result, const std::string& checkpoint, Session& session);
/// For RunOptions::on_overdue: shows the same and ends the process with the status of the outcome,
/// because a rank does not come back.
[[noreturn]] void leave_without_ranks(const Arguments& arguments, const Subject& subject,
                                      const exec::RunResult& result, Session& session) noexcept;

}  // namespace pipewright::tools
