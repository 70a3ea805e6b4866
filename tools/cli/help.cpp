#include "tools/cli/help.hpp"

#include <algorithm>

#include "tools/cli/exit_status.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

constexpr int kHelpColumn = 28;

std::string heading(const Terminal& terminal, std::string_view text) {
  return "\n" + painted(terminal, Ink::Bold, text) + "\n";
}

/// "  name      help", the help wrapped in a column of its own.
std::string entry(std::string_view name, std::string_view help, int width, int column) {
  std::string text = "  " + std::string(name);
  const std::string lines = wrapped(help, width, column);
  const std::size_t taken = columns_of(text);
  const auto start = static_cast<std::size_t>(column);
  if (taken + 2 > start) return text + "\n" + lines;
  text.append(start - taken, ' ');
  return text + (lines.size() > start ? lines.substr(start) : "\n");
}

std::string exit_status_section(const Terminal& terminal) {
  std::string text = heading(terminal, "Exit status");
  for (const auto& line : kExitStatusTable) {
    text += entry(std::to_string(line.status), line.meaning, terminal.width, 7);
  }
  return text;
}

/// As a shell takes it: broken before flags where there is room, a backslash at the end of each
/// line but the last.
std::string broken_line(std::string line, int width) {
  std::string text;
  const std::string indent = "      ";
  while (columns_of(line) > static_cast<std::size_t>(width)) {
    const std::size_t begin = line.find_first_not_of(' ');
    const std::size_t most = static_cast<std::size_t>(width) - 2;
    std::size_t space = line.rfind(" -", most);
    if (space == line.npos || space <= begin) space = line.rfind(' ', most);
    if (space == line.npos || space <= begin) break;
    text += line.substr(0, space) + " \\\n";
    line = indent + line.substr(space + 1);
  }
  return text + line + "\n";
}

std::string example_section(const std::vector<Example>& examples, const Terminal& terminal) {
  std::string text = heading(terminal, "Examples");
  for (const Example& example : examples) {
    text += broken_line("  " + line_of(example), terminal.width);
    text += painted(terminal, Ink::Dim, wrapped(example.comment, terminal.width, 6));
  }
  return text;
}

}  // namespace

std::string line_of(const Example& example) {
  return std::string(example.before) + "pipewright " + std::string(example.line);
}

std::string flag_spelling(const Flag& flag) {
  std::string text = flag.short_name != 0 ? std::string("-") + flag.short_name + ", " : "";
  text += flag.name;
  if (!flag.argument.empty()) text += " " + std::string(flag.argument);
  return text;
}

std::string usage_of(const Command& command) {
  std::string text;
  for (const Positional& positional : command.positionals) {
    std::string name(positional.name);
    if (positional.most == kAnyNumber) name += "...";
    text += positional.least > 0 ? name + " " : "[" + name + "] ";
  }
  return text + "[flags]";
}

std::vector<Flag> flags_with_common(const Command& command) {
  std::vector<Flag> flags = command.flags;
  for (Flag& flag : common_flags()) flags.push_back(std::move(flag));
  return flags;
}

std::string help_of(const Flag& flag) {
  std::string text(flag.help);
  if (flag.writes == Writes::File) text += "; - is standard output";
  if (flag.choices.empty()) return text;
  text += flag.checked ? " (" : " (such as ";
  for (std::size_t i = 0; i < flag.choices.size(); ++i) {
    text += (i > 0 ? ", " : "") + flag.choices[i];
  }
  return text + ")";
}

std::string command_help(const Command& command, const Terminal& terminal) {
  std::string text = painted(terminal, Ink::Bold, "pipewright " + command.name) + "\n" +
                     wrapped(command.summary, terminal.width, 2);
  if (!command.examples.empty()) text += example_section(command.examples, terminal);
  text += heading(terminal, "Usage");
  if (!command.children.empty()) {
    for (const Command& child : command.children) {
      text += entry(child.name.substr(command.name.size() + 1) + " " + usage_of(child),
                    child.summary, terminal.width, kHelpColumn);
    }
  } else {
    text += "  pipewright " + command.name + " " + usage_of(command) + "\n";
  }
  for (const Positional& positional : command.positionals) {
    text += entry(positional.name, positional.help, terminal.width, kHelpColumn);
  }
  if (!command.description.empty()) text += "\n" + wrapped(command.description, terminal.width, 0);
  std::string_view group;
  for (const Flag& flag : flags_with_common(command)) {
    if (flag.group != group) text += heading(terminal, flag.group);
    group = flag.group;
    text += entry(flag_spelling(flag), help_of(flag), terminal.width, kHelpColumn);
  }
  return text + exit_status_section(terminal);
}

std::string general_help(const Terminal& terminal) {
  std::string text = painted(terminal, Ink::Bold, "pipewright") + "\n" +
                     "  plans, checks, simulates, runs and explains pipeline-parallel training\n";
  text += example_section({{"demo", "the whole loop on this machine's CPUs, in under a minute"},
                           {"simulate -s 1f1b -p 4 -m 8 --cost F=1ms,B=2ms", "predict a timeline"},
                           {"check examples/order.csv", "will this order hang, and why?"}},
                          terminal);
  text += heading(terminal, "Usage");
  text += "  pipewright COMMAND [flags]\n  pipewright COMMAND --help\n";
  text += heading(terminal, "Commands");
  for (const Command& command : all_commands()) {
    text += entry(command.name, command.summary, terminal.width, 16);
  }
  text += heading(terminal, "Flags of pipewright itself");
  text += entry("--help", "this page", terminal.width, 16);
  text += entry("--version", "the version", terminal.width, 16);
  text += entry("--man", "the manual page, for man -l -", terminal.width, 16);
  return text + exit_status_section(terminal);
}

}  // namespace pipewright::tools
