#include "tools/cli/manual.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "tools/cli/command.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/help.hpp"

namespace pipewright::tools {
namespace {

/// Text for roff: no line may begin with a control character, hyphens are typed as they are.
std::string roff(std::string_view text) {
  std::string result;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) result += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string manual_of(const Command& command) {
  std::string text = ".SS " + roff("pipewright " + command.name + " " + usage_of(command)) + "\n";
  text += roff(command.summary) + ".\n";
  if (!command.description.empty()) text += ".PP\n" + roff(command.description) + "\n";
  for (const Positional& positional : command.positionals) {
    text += ".TP\n.I " + roff(positional.name) + "\n" + roff(positional.help) + "\n";
  }
  for (const Flag& flag : command.flags) {
    text += ".TP\n.B " + roff(flag_spelling(flag)) + "\n" + roff(help_of(flag)) + "\n";
  }
  for (const Example& example : command.examples) {
    text +=
        ".PP\n.nf\n.RS\n" + roff(line_of(example)) + "\n.RE\n.fi\n" + roff(example.comment) + "\n";
  }
  return text;
}

/// `|` would end a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string flag_table(const std::vector<Flag>& flags) {
  std::string text = "| flag | meaning |\n|---|---|\n";
  for (const Flag& flag : flags) {
    text += "| `" + cell(flag_spelling(flag)) + "` | " + cell(help_of(flag)) + " |\n";
  }
  return text + "\n";
}

std::string markdown_of(const Command& command) {
  std::string text = "### pipewright " + command.name + "\n\n";
  text += "`pipewright " + command.name + " " + usage_of(command) +
          "`: " + std::string(command.summary) + ".\n\n";
  if (!command.description.empty()) text += std::string(command.description) + "\n\n";
  for (const Positional& positional : command.positionals) {
    text += "- `" + std::string(positional.name) + "`: " + std::string(positional.help) + "\n";
  }
  if (!command.positionals.empty()) text += "\n";
  if (!command.flags.empty()) text += flag_table(command.flags);
  if (!command.examples.empty()) {
    text += "```sh\n";
    for (const Example& example : command.examples) {
      text += "# " + std::string(example.comment) + "\n" + line_of(example) + "\n";
    }
    text += "```\n\n";
  }
  return text;
}

/// What `run` and `tune` ask of the environment where they are part of a job (--transport tcp);
/// docs/several-hosts.md says more.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kEnvironmentTable = {{
    {"PIPEWRIGHT_RANK", "which process of the job this is, from 0; else RANK, as torchrun sets it"},
    {"PIPEWRIGHT_WORLD_SIZE", "how many processes the job has; else WORLD_SIZE"},
    {"PIPEWRIGHT_LOCAL_RANK",
     "which process of its host this is, from 0, and so which GPU it takes; else LOCAL_RANK, else "
     "0"},
    {"PIPEWRIGHT_RENDEZVOUS",
     "where the processes meet: tcp://host:port, where process 0 listens, or file:///folder, a "
     "fresh one that all see; else MASTER_ADDR and the port above MASTER_PORT"},
    {"PIPEWRIGHT_TOKEN_FILE",
     "a file of this user's alone (mode 0600) with the secret by which the processes know one "
     "another; needed where other hosts reach the rendezvous"},
    {"PIPEWRIGHT_TOKEN", "the secret itself, in place of a file"},
    {"PIPEWRIGHT_LISTEN",
     "the address on which this process listens, where it is not the rendezvous's"},
}};

template <class Describe>
std::string of_all(Describe describe) {
  std::string text;
  for (const Command& command : all_commands()) {
    if (command.children.empty()) text += describe(command);
    for (const Command& child : command.children) text += describe(child);
  }
  return text;
}

}  // namespace

std::string manual_page() {
  std::string text = ".TH PIPEWRIGHT 1 \"\" \"pipewright " PIPEWRIGHT_VERSION "\"\n";
  text +=
      ".SH NAME\npipewright \\- plans, checks, simulates, runs and explains pipeline\\-parallel "
      "training\n";
  text += ".SH SYNOPSIS\n.B pipewright\n.I COMMAND\n[flags]\n";
  text +=
      ".SH DESCRIPTION\nResults go to standard output, notes and progress to standard error. "
      "Colour is used on a terminal only, and not where NO_COLOR is set.\n";
  text += ".SH COMMANDS\n" + of_all(manual_of);
  text += ".SH FLAGS OF EVERY COMMAND\n";
  for (const Flag& flag : common_flags()) {
    text += ".TP\n.B " + roff(flag_spelling(flag)) + "\n" + roff(help_of(flag)) + "\n";
  }
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : kEnvironmentTable) {
    text += ".TP\n.B " + std::string(name) + "\n" + roff(meaning) + "\n";
  }
  text += ".SH EXIT STATUS\n";
  for (const auto& line : kExitStatusTable) {
    text += ".TP\n.B " + std::to_string(line.status) + "\n" + roff(line.meaning) + "\n";
  }
  return text;
}

std::string markdown_reference() {
  std::string text = "## Commands\n\n" + of_all(markdown_of);
  text += "## Flags of every command\n\n" + flag_table(common_flags());
  text += "## Exit status\n\n| status | meaning |\n|---|---|\n";
  for (const auto& line : kExitStatusTable) {
    text += "| " + std::to_string(line.status) + " | " + std::string(line.meaning) + " |\n";
  }
  return text;
}

}  // namespace pipewright::tools
