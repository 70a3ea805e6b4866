#include "core/program/wait_text.hpp"

#include "core/program/calls.hpp"
#include "core/program/wait_for.hpp"

namespace pipewright {
namespace {

std::string why_mismatched(const Program& program, InstructionId one, InstructionId other) {
  const Instruction &a = program.code[one], &b = program.code[other];
  if (!is_call(a.kind) || !is_call(b.kind))
    return ": they are for different tensors, but stand at the same place of their edge\n";
  const std::string where = is_transfer(a.kind) ? "their edge" : "the calls of their group";
  const std::string what(difference(program, one, other));
  return ": they stand at the same place of " + where + ", but differ in " + what + "\n";
}

}  // namespace

std::string rank_text(RankId rank) { return "rank " + std::to_string(rank.value); }

std::string what_never_comes(const Program& program, InstructionId head) {
  const Instruction& in = program.code[head];
  if (!in.in_collective() || program.collectives[in.route].missing.empty())
    return "nothing left to run matches it";
  std::string text;
  for (const RankId rank : program.collectives[in.route].missing)
    text += (text.empty() ? "" : ", ") + rank_text(rank);
  if (in.kind == ActionKind::NewGroup)
    return text + " makes no such group, and making one takes all ranks";
  return text + " has no such call of group " + program.call(in).group;
}

std::string describe(const Program& program, const WaitReport& report) {
  std::string text;
  if (report.verdict == Verdict::Mismatch) {
    text += rank_text(program.rank_of(report.mismatched_send)) + "'s " +
            program.text(report.mismatched_send) + " meets " +
            rank_text(program.rank_of(report.mismatched_recv)) + "'s " +
            program.text(report.mismatched_recv) +
            why_mismatched(program, report.mismatched_send, report.mismatched_recv);
  }
  for (const WaitStep& step : report.shown()) {
    text += rank_text(step.rank) + "  " + program.text(step.instruction) +
            (step.to_be_issued ? " is not issued yet: it waits for " : " waits for ") +
            rank_text(program.rank_of(step.waits_for)) + "'s " + program.text(step.waits_for);
    if (step.through != kNoInstruction) text += " (through " + program.text(step.through) + ")";
    if (step.behind != step.waits_for) text += ", which stands behind " + program.text(step.behind);
    text += '\n';
  }
  for (const std::string& reason : report.reasons) text += reason + '\n';
  return text;
}

}  // namespace pipewright
