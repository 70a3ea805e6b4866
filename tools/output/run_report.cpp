#include "tools/output/run_report.hpp"

#include <algorithm>
#include <limits>

#include "core/base/units.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/table.hpp"
#include "tools/output/step_lines.hpp"
#include "tools/output/timeline_files.hpp"
#include "tools/output/verdict.hpp"

namespace pipewright::tools {
namespace {

// Entries of the flight recorder in the result on stdout; the file of --report holds all.
constexpr std::size_t kRecentInResult = 16;

using exec::RankState;

Json name_or_null(const Program& program, InstructionId id) {
  return id == kNoInstruction ? Json(nullptr) : Json(program.text(id));
}

std::string name_or_dash(const Program& program, InstructionId id) {
  return id == kNoInstruction ? "-" : program.text(id);
}

Json lane_fields(const Program& program, const LaneTable& lanes, RankId rank,
                 const exec::LaneReport& lane) {
  const auto index = lanes.rank_lane_begin[static_cast<std::size_t>(rank.value)] +
                     static_cast<std::uint32_t>(lane.lane);
  const bool is_host = index >= lanes.rank_lane_begin[static_cast<std::size_t>(rank.value) + 1];
  return {{"lane", lane.lane},
          {"name", is_host ? "host" : lane_name(program, lanes, index)},
          {"last_finished", name_or_null(program, lane.last_finished)},
          {"first_unfinished", name_or_null(program, lane.first_unfinished)}};
}

Json recent_fields(const Program& program, const std::vector<exec::FlightEntry>& recent,
                   std::size_t most) {
  Json entries = Json::array();
  for (std::size_t i = recent.size() - std::min(most, recent.size()); i < recent.size(); ++i) {
    const exec::FlightEntry& entry = recent[i];
    Json fields = {{"time_ns", entry.time_ns},
                   {"instruction", program.text(entry.instruction)},
                   {"state", std::string(to_string(entry.state))}};
    if (entry.waits_for != kNoInstruction) fields["waits_for"] = program.text(entry.waits_for);
    entries.push_back(std::move(fields));
  }
  return entries;
}

Json rank_fields(const Program& program, const LaneTable& lanes, const exec::RankReport& rank,
                 std::size_t most_recent) {
  Json lane_list = Json::array();
  for (const auto& lane : rank.lanes) {
    lane_list.push_back(lane_fields(program, lanes, rank.rank, lane));
  }
  const bool waits = rank.waits_for != kNoInstruction;
  return {{"rank", rank.rank.value},
          {"state", std::string(to_string(rank.state))},
          {"last_finished", name_or_null(program, rank.last_finished)},
          {"first_unfinished", name_or_null(program, rank.first_unfinished)},
          {"waits_for", name_or_null(program, rank.waits_for)},
          {"waits_for_rank", waits ? Json(program.rank_of(rank.waits_for).value) : Json(nullptr)},
          {"idle_ns", rank.idle_ns < 0 ? Json(nullptr) : Json(rank.idle_ns)},
          {"lanes", std::move(lane_list)},
          {"recent", recent_fields(program, rank.recent, most_recent)}};
}

Ink ink_of(RankState state) {
  if (state == RankState::Dead || state == RankState::Stuck) return Ink::Red;
  return state == RankState::Slow ? Ink::Yellow : Ink::Plain;
}

/// For the page: how far it came, and why no further.
traces::PageNotes unfinished_notes(const exec::RunResult& result) {
  const std::string why = result.failure.empty() ? "" : ": " + result.failure;
  return {
      .checks = {{"outcome of the run: " + std::string(to_string(result.outcome)) + why, false}},
      .charts = loss_charts(result)};
}

void print_unfinished(const Subject& subject, const exec::RunResult& result, Session& session) {
  const bool stuck = result.outcome == exec::Outcome::Stuck;
  if (session.json()) {
    Json fields = stuck ? verdict_fields(subject.program, result.stuck, {}) : Json::object();
    fields["outcome"] = std::string(to_string(result.outcome));
    fields["steps"] = Json::array();
    fields["report"] = run_report_fields(subject.program, result, kRecentInResult);
    fields["report"].erase("schema");
    return session.print_result(fields, steps_list(result));
  }
  if (stuck) {
    session.print("the watchdog ended the run in step " + std::to_string(result.steps.size() + 1) +
                  "\n");
    session.print(verdict_text(subject.program, result.stuck, {}, session.terminal()));
  }
  session.print(run_report_text(subject.program, result, session.terminal()));
}

}  // namespace

Json run_report_fields(const Program& program, const exec::RunResult& result,
                       std::size_t most_recent) {
  Json fields = {{"schema", "pipewright.report/1"},
                 {"outcome", std::string(to_string(result.outcome))},
                 {"step", result.timeline_step},
                 {"failure", result.failure.empty() ? Json(nullptr) : Json(result.failure)}};
  const Json verdict = verdict_fields(program, result.report.waits, {});
  for (const char* key : {"verdict", "cycle", "problems"}) fields[key] = verdict.at(key);
  if (result.report.waits.verdict == Verdict::Ok) fields["verdict"] = nullptr;
  const LaneTable lanes = lane_table(program);
  fields["ranks"] = Json::array();
  for (const auto& rank : result.report.ranks) {
    fields["ranks"].push_back(rank_fields(program, lanes, rank, most_recent));
  }
  return fields;
}

std::string run_report_text(const Program& program, const exec::RunResult& result,
                            const Terminal& terminal) {
  Table table({{"rank", Table::Align::Right},
               {"state"},
               {"for", Table::Align::Right},
               {"last finished"},
               {"unfinished"},
               {"waits for"}});
  for (const exec::RankReport& rank : result.report.ranks) {
    std::string waits_for = "-";
    if (rank.waits_for != kNoInstruction) {
      waits_for = "rank " + std::to_string(program.rank_of(rank.waits_for).value) + "'s " +
                  program.text(rank.waits_for);
    }
    table.add({std::to_string(rank.rank.value), std::string(to_string(rank.state)),
               rank.idle_ns < 0 ? "-" : format_duration(Nanoseconds(rank.idle_ns)),
               name_or_dash(program, rank.last_finished),
               name_or_dash(program, rank.first_unfinished), waits_for},
              ink_of(rank.state));
  }
  return table.text(terminal);
}

void show_unfinished(const Arguments& arguments, const Subject& subject,
                     const exec::RunResult& result, Session& session) {
  session.clear_progress();
  print_unfinished(subject, result, session);
  // The report must be out before a file is written, because that may fail.
  session.flush();
  if (const auto path = arguments.text("--report")) {
    constexpr auto kAll = std::numeric_limits<std::size_t>::max();
    session.save(*path, to_text(run_report_fields(subject.program, result, kAll)));
    session.wrote(*path);
  }
  save_timeline_files(arguments, session, subject, result.timeline,
                      traces::TraceInfo::Kind::Measured, "", unfinished_notes(result));
}

void show_diverged(const Arguments& arguments, const Subject& subject,
                   const exec::RunResult& result, const std::string& checkpoint, Session& session) {
  session.clear_progress();
  if (session.json()) {
    Json fields = {{"outcome", std::string(to_string(result.outcome))},
                   {"failure", result.failure},
                   {"first_step", result.first_step},
                   {"steps", Json::array()}};
    if (!checkpoint.empty()) fields["checkpoint"] = checkpoint;
    session.print_result(fields, steps_list(result));
  } else if (writes_steps_at_once(session)) {
    const int last = result.first_step + static_cast<int>(result.steps.size());
    session.print(step_line(last, result.steps.back()));
  } else {
    session.print(steps_text(result));
  }
  session.flush();
  if (arguments.has("--save-checkpoint"))
    session.note(checkpoint.empty()
                     ? "no checkpoint was saved before the step that diverged"
                     : "the last checkpoint before the step that diverged is " + checkpoint);
  save_timeline_files(arguments, session, subject, result.timeline,
                      traces::TraceInfo::Kind::Measured, "", unfinished_notes(result));
}

void leave_without_ranks(const Arguments& arguments, const Subject& subject,
                         const exec::RunResult& result, Session& session) noexcept {
  int status = kRunFailed;
  try {
    if (result.outcome == exec::Outcome::Interrupted) {
      status = kInterrupted;
      session.clear_progress();
      session.note("pipewright run: interrupted");
    } else {
      show_unfinished(arguments, subject, result, session);
      session.note("pipewright run: " +
                   (result.failure.empty() ? "the run is stuck" : result.failure));
    }
  } catch (const std::exception& error) {
    session.note(std::string("pipewright run: ") + error.what());
  }
  leave_at_once(status);
}

}  // namespace pipewright::tools
