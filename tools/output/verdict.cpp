#include "tools/output/verdict.hpp"

#include <algorithm>
#include <cctype>

#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kMostLines = 12;

std::string upper_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

/// Sentences that the report holds besides the cycle.
std::vector<std::string> sentences(const Program& program, const WaitReport& report,
                                   const std::vector<std::string>& problems) {
  std::vector<std::string> result = problems;
  if (report.verdict == Verdict::Mismatch) {
    std::string text = describe(program, report);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    result.push_back(text);
  }
  result.insert(result.end(), report.reasons.begin(), report.reasons.end());
  return result;
}

std::string indented(const std::string& text, int width) {
  std::string result;
  std::size_t begin = 0, lines = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (++lines > kMostLines) return result + "  ...\n";
    result += wrapped(std::string_view(text).substr(begin, end - begin), width, 2);
    begin = end + 1;
  }
  return result;
}

Json steps_json(const Program& program, const std::vector<WaitStep>& steps) {
  Json list = Json::array();
  for (const WaitStep& step : steps) {
    list.push_back({{"rank", step.rank.value},
                    {"instruction", program.text(step.instruction)},
                    {"waits_for", program.text(step.waits_for)},
                    {"behind", program.text(step.behind)}});
    if (step.through != kNoInstruction) list.back()["through"] = program.text(step.through);
  }
  return list;
}

std::string heads_text(const Program& program, const WaitReport& report) {
  std::string text;
  int named = 0;
  for (const StuckHead& head : report.stuck) {
    // Where the cause is among the computations, lowering has added the transfers: they are left
    // out.
    if (!report.cause.empty() && is_transfer(program.code[head.instruction].kind)) continue;
    if (++named > 32) return "heads:" + text + ", ...";
    text += (text.empty() ? " rank " : ", rank ") + std::to_string(head.rank.value) + " " +
            program.text(head.instruction);
  }
  return "heads:" + text;
}

}  // namespace

Json verdict_fields(const Program& program, const WaitReport& report,
                    const std::vector<std::string>& problems) {
  Json stuck = Json::array();
  for (const StuckHead& head : report.stuck) {
    stuck.push_back({{"rank", head.rank.value},
                     {"lane", head.lane},
                     {"instruction", program.text(head.instruction)}});
  }
  return {{"verdict", std::string(to_string(report.verdict))},
          {"cycle", steps_json(program, report.shown())},
          {"lane_cycle", steps_json(program, report.cycle)},
          {"stuck", stuck},
          {"fix", nullptr},
          {"problems", sentences(program, report, problems)}};
}

std::string verdict_text(const Program& program, const WaitReport& report,
                         const std::vector<std::string>& problems, const Terminal& terminal) {
  const bool good = report.verdict == Verdict::Ok;
  std::string text = painted(terminal, good ? Ink::Green : Ink::Red,
                             good ? "ok" : upper_case(to_string(report.verdict))) +
                     "\n";
  std::string lines;
  for (const auto& sentence : sentences(program, report, problems)) lines += sentence + "\n";
  if (!report.cycle.empty()) lines += describe(program, report);
  text += indented(lines, terminal.width);
  if (!good && !report.stuck.empty()) {
    text += painted(terminal, Ink::Dim, wrapped(heads_text(program, report), terminal.width, 2));
  }
  return text;
}

}  // namespace pipewright::tools
