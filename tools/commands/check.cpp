// pipewright check: will it hang, and why?
#include <optional>

#include "core/base/error.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "sim/engine.hpp"
#include "sim/judgement.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/expanded.hpp"
#include "tools/input/megatron_exchange.hpp"
#include "tools/input/memory_limit.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/fix_text.hpp"
#include "tools/output/policy_matrix_text.hpp"
#include "tools/output/timeline_files.hpp"
#include "tools/output/verdict.hpp"

namespace pipewright::tools {
namespace {

/// True if neither a flag nor what was given names a policy: a plan has one, and a schedule may be
/// about one.
bool names_no_policy(const Subject& subject, const Arguments& arguments) {
  if (names_policy(arguments) || subject.plan() != nullptr) return false;
  const auto* named = std::get_if<NamedSchedule>(&subject.given);
  return named == nullptr || named->schedule->policy.empty();
}

/// One judgement; of an order without a policy one for each way in which stock PyTorch may run it,
/// of Megatron-LM's list one for each of its policies. The subject is left under the worst of them.
sim::Judgements judgements_of(Subject& subject, bool as_torch,
                              const std::vector<sim::NamedPolicy>& megatron) {
  sim::Judgements judged;
  if (!megatron.empty()) {
    judged = sim::judge_under(megatron, subject.order, subject.lowering, subject.problems,
                              subject.costs);
    subject.program = std::move(judged.program);
  } else if (as_torch) {
    judged = sim::judge_as_torch(subject.order, subject.lowering, subject.problems, subject.costs);
    subject.program = std::move(judged.program);
  } else {
    judged.all.push_back({std::string(name_of(subject.program.policy)),
                          sim::judge(subject.problems, subject.program, subject.costs)});
  }
  return judged;
}

/// "torch-2.11 ok, torch-2.12-lazy deadlock, torch-2.12-eager ok".
std::string verdicts_text(const std::vector<sim::Judgement>& all) {
  std::string text;
  for (const sim::Judgement& each : all) {
    text += (text.empty() ? "" : ", ") + each.policy + " " +
            std::string(to_string(each.report.verdict));
  }
  return text;
}

Json verdicts_json(const std::vector<sim::Judgement>& all) {
  Json verdicts = Json::object();
  for (const sim::Judgement& each : all)
    verdicts[each.policy] = std::string(to_string(each.report.verdict));
  return verdicts;
}

std::vector<std::string> notes_on(const Subject& subject) {
  if (subject.lowering.fragment) return {};
  std::vector<std::string> notes = notes_of(subject.order);
  const bool file = std::holds_alternative<OrderAlone>(subject.given);
  if (file && !subject.problems.empty() && is_incomplete(subject.order)) {
    notes.emplace_back(
        "if this is a part, such as a log cut out of a hang, say so: --fragment, \"# fragment\" as "
        "the first line of a CSV, or \"fragment\": true in an order.json");
  }
  return notes;
}

/// The verdict under another preset, where the user named no policy: whether a send blocks depends
/// on the library and on the message size.
std::string other_policies(const Subject& subject, const Terminal& terminal) {
  std::string text;
  for (const char* name : {"ideal", "torch-gloo", "nccl-one-stream", "megatron-batched"}) {
    const CommPolicy& policy = comm_policy_preset(name);
    const Program program = lower(subject.order, policy, {.fragment = subject.program.fragment});
    const Verdict verdict = sim::check(program, subject.costs).verdict;
    text += "  " + std::string(name);
    text.append(18 - std::string_view(name).size(), ' ');
    text += painted(terminal, verdict == Verdict::Ok ? Ink::Green : Ink::Red, to_string(verdict)) +
            "\n";
  }
  return "under other policies:\n" + text;
}

/// The picture, with what is stuck in red. The verdict itself needs no durations.
void draw(const Subject& subject, const Arguments& arguments, Session& session) {
  const bool asked = arguments.has("--trace") || arguments.has("--svg") || arguments.has("--html");
  if (!asked || !subject.problems.empty()) return;
  save_timeline_files(arguments, session, subject,
                      sim::simulate(subject.program, subject.costs).timeline,
                      traces::TraceInfo::Kind::Simulated);
}

/// What --fix finds; nothing where it is not asked for, or nothing hangs.
std::optional<planner::FixReport> asked_fix(const Arguments& arguments, const Subject& subject,
                                            const WaitReport& report) {
  if (!arguments.has("--fix") || report.verdict == Verdict::Ok) return std::nullopt;
  return fix_of(subject);
}

/// Fixed, and within the limit of --mem: the file of --out is written.
bool accept_fix(const Arguments& arguments, const Subject& subject, const planner::FixReport& fixed,
                Session& session) {
  if (fixed.fixes.empty()) return false;
  const planner::Fix& fix = fixed.fixes.front();
  const auto over = over_memory(peaks_of(fixed_program(subject.lowering, fix), subject.costs),
                                subject.memory_limit);
  for (const auto& sentence : over) session.note("fixed: " + sentence);
  if (const auto path = arguments.text("--out")) save_fixed(subject, fix, *path, session);
  return over.empty();
}

int run_check(const Arguments& arguments, Session& session) {
  if (arguments.has("--out") && !arguments.has("--fix"))
    throw InputError("--out belongs to --fix: it writes what was fixed");
  if (arguments.has("--fix") && arguments.has("--megatron"))
    throw InputError(
        "--fix changes what ranks do, and Megatron-LM's loop does what --megatron says");
  Subject subject = read_subject(arguments, Purpose::Judge, session);
  std::vector<sim::NamedPolicy> megatron;
  if (subject.problems.empty()) {
    megatron = exchange_as_asked(arguments, subject);
    expand_if_asked(arguments, subject);
  }
  const bool as_torch = megatron.empty() && names_no_policy(subject, arguments);
  const sim::Judgements judged = judgements_of(subject, as_torch, megatron);
  const std::vector<sim::Judgement>& all = judged.all;
  const WaitReport& report = judged.worst().report;
  draw(subject, arguments, session);
  std::vector<std::string> problems = subject.problems;
  const auto over =
      report.verdict == Verdict::Ok
          ? over_memory(peaks_of(subject.program, subject.costs), subject.memory_limit)
          : std::vector<std::string>();
  problems.insert(problems.end(), over.begin(), over.end());
  const auto fixed = asked_fix(arguments, subject, report);
  const bool good = fixed ? accept_fix(arguments, subject, *fixed, session)
                          : report.verdict == Verdict::Ok && over.empty();
  const std::vector<std::string> notes = notes_on(subject);
  const bool matrix = arguments.has("--matrix");
  if (session.json()) {
    Json fields = verdict_fields(subject.program, report, problems);
    fields["verdicts"] = verdicts_json(all);
    if (fixed) fields["fix"] = fix_fields(*fixed);
    fields["notes"] = notes;
    if (matrix) add_matrix_fields(fields, subject);
    session.print_result(fields);
    return good ? kDone : kAnswerIsNo;
  }
  const Terminal& terminal = session.terminal();
  if (all.size() > 1) session.print(wrapped(verdicts_text(all), terminal.width, 0));
  session.print(wrapped(subject.title, terminal.width, 0));
  session.print(wrapped("policy " + policy_text(subject.program.policy, judged.worst().policy),
                        terminal.width, 0));
  session.print(verdict_text(subject.program, report, problems, terminal));
  for (const auto& note : notes) session.print(wrapped("note: " + note, terminal.width, 0));
  if (matrix) {
    session.print(matrix_text(subject, terminal));
  } else if (!names_policy(arguments) && megatron.empty() && subject.plan() == nullptr &&
             subject.problems.empty()) {
    session.print(other_policies(subject, terminal));
  }
  if (fixed) session.print(fix_text(*fixed, terminal));
  return good ? kDone : kAnswerIsNo;
}

}  // namespace

Command check_command() {
  Command command;
  command.name = "check";
  command.summary = "say whether a plan or an order hangs, and why";
  command.description =
      "Reads the Program without durations. Without a policy flag a plan is judged under its own "
      "policy, a schedule under the one it is about, and any other order as stock PyTorch runs it "
      "over NCCL, under torch-2.11, torch-2.12-lazy and torch-2.12-eager: the first line has the "
      "three verdicts, and the worst (invalid, mismatch, deadlock, ok) counts. Exit status 1: "
      "deadlock, mismatch, invalid, or over the limit of --mem; with --fix only if no fix is "
      "found (docs/fixing-hangs.md).";
  command.examples = {
      {"check examples/order.csv", "will this order hang on NCCL?"},
      {"check examples/order.csv --issue inline",
       "and with every transfer on the stream that computes?"},
      {"check docs/hangs/nccl-479.csv --issue inline",
       "a log cut out of a hang, whose first line is # fragment; exits with 1"},
      {"check examples/order.csv --matrix --message-bytes 4MiB",
       "where is it safe, and with what credit?"},
      {"check --schedule paddle-vpp --jobs fused -p 4 -m 8 -v 2",
       "a hang that really happened; exits with 1"},
      {"check -s interleaved -p 4 -m 8 -v 2 --megatron overlap", "and in Megatron-LM?"},
      {"check examples/order.csv --channel rank --post deferred --fix -o fixed.csv",
       "an order that hangs, and its fix"},
  };
  command.positionals = {subject_file()};
  command.flags = subject_flags();
  command.flags.push_back(expand_flag());
  command.flags.push_back(megatron_flag());
  for (auto& flag : timeline_file_flags()) command.flags.push_back(std::move(flag));
  for (auto& flag : fix_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back(
      {.group = "Communication",
       .name = "--matrix",
       .help = "the verdict under every preset and every combination of issue, channel, protocol "
               "and post too, and the least eager credit that passes"});
  command.run = run_check;
  return command;
}

}  // namespace pipewright::tools
