#include "tests/support/documented_commands.hpp"

#include <algorithm>
#include <regex>
#include <sstream>

namespace pipewright::test {
namespace {

struct Line {
  int number = 0;
  std::string text;
};

/// Its lines without the fence or the indent.
using RawBlock = std::vector<Line>;

std::vector<RawBlock> raw_blocks(const std::string& markdown) {
  std::vector<RawBlock> blocks;
  std::istringstream in(markdown);
  bool fenced = false, of_hosts = false, indented = false, blank = true;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with("```")) {
      fenced = !fenced;
      of_hosts = line == "```sh hosts";
      if (fenced) blocks.emplace_back();
      indented = false;
    } else if (fenced) {
      if (!of_hosts) blocks.back().push_back({number, line});
    } else if (line.starts_with("    ") && (indented || blank)) {
      if (!indented) blocks.emplace_back();
      indented = true;
      blocks.back().push_back({number, line.substr(4)});
    } else {
      indented = false;
    }
    blank = line.empty();
  }
  return blocks;
}

bool runs_pipewright(const std::string& line) {
  if (line.starts_with(">>> ")) return false;  // Python, which has a test of its own
  static const std::regex kWord(R"((^|[\s(])pipewright\s)");
  return std::regex_search(line.substr(0, line.find(" #")) + " ", kWord);
}

int status_of(const DocumentedCommand& command) {
  static const std::regex kSays(R"(#.*\bexits with (\d+))");
  static const std::regex kVerdict(R"((^|\n)\s*(DEADLOCK|MISMATCH|INVALID))");
  static const std::regex kFix(R"((^|\n)\s*fix:)");
  std::smatch found;
  if (std::regex_search(command.text, found, kSays)) return std::stoi(found[1]);
  return std::regex_search(command.output, kVerdict) && !std::regex_search(command.output, kFix)
             ? 1
             : 0;
}

/// Adds a line to a command. True if it ends with a backslash, so that the next one belongs to it.
bool continue_with(const std::string& line, DocumentedCommand& command) {
  command.text += line.substr(command.text.empty() ? 0 : line.find_first_not_of(' '));
  const bool goes_on = line.ends_with(" \\");
  if (goes_on) command.text.pop_back();
  return goes_on;
}

DocumentedBlock commands_of(const RawBlock& block) {
  const bool prompted = std::any_of(block.begin(), block.end(),
                                    [](const Line& line) { return line.text.starts_with("$ "); });
  DocumentedBlock commands;
  bool goes_on = false;
  for (const Line& line : block) {
    if (goes_on) {
      goes_on = continue_with(line.text, commands.back());
      continue;
    }
    const bool prompt = line.text.starts_with("$ ");
    if (prompt || (!prompted && runs_pipewright(line.text))) {
      commands.push_back({line.number, "", "", 0});
      goes_on = continue_with(prompt ? line.text.substr(2) : line.text, commands.back());
    } else if (prompted && !commands.empty()) {
      commands.back().output += line.text + "\n";
    }
  }
  for (DocumentedCommand& command : commands) command.status = status_of(command);
  return commands;
}

std::string with_single_spaces(const std::string& text) {
  std::istringstream in(text);
  std::string result, word;
  while (in >> word) result += (result.empty() ? "" : " ") + word;
  return result;
}

std::string comparable(const std::string& text) {
  static const std::regex kTook(R"(\bin \d+(\.\d+)? (ns|us|ms|s|min|h)\b)");
  return std::regex_replace(with_single_spaces(text), kTook, "in …");
}

}  // namespace

std::vector<DocumentedBlock> blocks_of_page(const std::string& markdown) {
  std::vector<DocumentedBlock> blocks;
  for (const RawBlock& raw : raw_blocks(markdown)) {
    DocumentedBlock commands = commands_of(raw);
    const bool ours =
        std::any_of(commands.begin(), commands.end(),
                    [](const DocumentedCommand& command) { return runs_pipewright(command.text); });
    if (ours) blocks.push_back(std::move(commands));
  }
  return blocks;
}

DocumentedBlock examples_of_help(const std::string& help) {
  DocumentedBlock commands;
  std::istringstream in(help);
  bool inside = false, goes_on = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (goes_on) {
      goes_on = continue_with(line, commands.back());
    } else if (!line.starts_with(" ")) {
      if (!line.empty()) inside = line == "Examples";
    } else if (inside && line.find_first_not_of(' ') == 2) {
      commands.push_back({number, "", "", 0});
      goes_on = continue_with(line.substr(2), commands.back());
    } else if (inside && !commands.empty()) {  // what it shows
      commands.back().text += (commands.back().text.find(" # ") == std::string::npos ? " #" : "") +
                              line.substr(line.find_first_not_of(' ') - 1);
    }
  }
  for (DocumentedCommand& command : commands) command.status = status_of(command);
  return commands;
}

bool shows(const std::string& printed, const std::string& shown) {
  static const std::string kAnything = "…";
  std::string pattern = comparable(shown);
  for (auto dots = pattern.find("..."); dots != std::string::npos; dots = pattern.find("...")) {
    pattern.replace(dots, 3, kAnything);
  }
  const std::string text = comparable(printed);
  std::size_t from = 0;
  for (std::size_t start = 0; start <= pattern.size();) {
    const std::size_t end = std::min(pattern.find(kAnything, start), pattern.size());
    std::string part = pattern.substr(start, end - start);
    part.erase(0, part.find_first_not_of(' ') == std::string::npos ? part.size()
                                                                   : part.find_first_not_of(' '));
    while (part.ends_with(' ')) part.pop_back();
    const std::size_t found = text.find(part, from);
    if (found == std::string::npos) return false;
    from = found + part.size();
    start = end + kAnything.size();
  }
  return true;
}

}  // namespace pipewright::test
