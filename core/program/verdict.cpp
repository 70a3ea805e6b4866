#include "core/program/verdict.hpp"

#include <cctype>

namespace pipewright {
namespace {

constexpr std::size_t kMostLines = 12;

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

std::string verdict_title(const WaitReport& report) {
  std::string title(to_string(report.verdict));
  if (report.verdict == Verdict::Ok) return title;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return title;
}

std::vector<std::string> verdict_reasons(const Program& program, const WaitReport& report,
                                         const std::vector<std::string>& problems) {
  std::string text;
  for (const auto& sentence : sentences(program, report, problems)) text += sentence + "\n";
  if (!report.cycle.empty()) text += describe(program, report);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (lines.size() == kMostLines) {
      lines.emplace_back("...");
      break;
    }
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string stuck_heads_text(const Program& program, const WaitReport& report) {
  if (report.verdict == Verdict::Ok || report.stuck.empty()) return "";
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

}  // namespace pipewright
