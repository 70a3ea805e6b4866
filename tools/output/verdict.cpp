#include "tools/output/verdict.hpp"

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

}  // namespace pipewright::tools
