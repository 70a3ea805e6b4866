#include "tools/output/verdict.hpp"

#include "tools/cli/exit_status.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {

std::string verdict_text(const Program& program, const WaitReport& report,
                         const std::vector<std::string>& problems, const Terminal& terminal) {
  const bool good = report.verdict == Verdict::Ok;
  std::string text = painted(terminal, good ? Ink::Green : Ink::Red, verdict_title(report)) + "\n";
  for (const std::string& line : verdict_reasons(program, report, problems))
    text += wrapped(line, terminal.width, 2);
  const std::string heads = stuck_heads_text(program, report);
  if (!heads.empty()) text += painted(terminal, Ink::Dim, wrapped(heads, terminal.width, 2));
  return text;
}

int show_verdict(const Subject& subject, const WaitReport& report, Session& session) {
  if (session.json()) {
    session.print_result(verdict_fields(subject.program, report, subject.problems));
  } else {
    session.print(wrapped(subject.title, session.terminal().width, 0));
    session.print(
        wrapped("policy " + policy_text(subject.program.policy), session.terminal().width, 0));
    session.print(verdict_text(subject.program, report, subject.problems, session.terminal()));
  }
  return kAnswerIsNo;
}

}  // namespace pipewright::tools
