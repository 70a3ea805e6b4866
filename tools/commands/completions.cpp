// pipewright completions bash|zsh|fish: scripts made from the tables of tools/cli/command.hpp.
#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/help.hpp"
#include "tools/cli/session.hpp"
#include "tools/commands/commands.hpp"

namespace pipewright::tools {
namespace {

/// Sub-commands with their children in place of their parents.
std::vector<Command> leaves() {
  std::vector<Command> result;
  for (const Command& command : all_commands()) {
    if (command.children.empty()) result.push_back(command);
    for (const Command& child : command.children) result.push_back(child);
  }
  return result;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string names_of(const std::vector<Command>& commands, std::size_t skip) {
  std::string text;
  for (const Command& command : commands) {
    text += (text.empty() ? "" : " ") + command.name.substr(skip);
  }
  return text;
}

std::string words_of(const Command& command) {
  std::string text;
  for (const Flag& flag : flags_with_common(command)) {
    text += (text.empty() ? "" : " ") + std::string(flag.name);
  }
  for (const Positional& positional : command.positionals) {
    for (const auto& choice : positional.choices) text += " " + choice;
  }
  return text;
}

/// Single quotes for a shell; a quote inside closes, escapes and opens again.
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// Values are looked up by "command flag", words by "command".
std::string bash_script() {
  std::string text =
      "# bash completion of pipewright: source this file, or put it into\n"
      "# /usr/share/bash-completion/completions/pipewright\n"
      "_pipewright() {\n"
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local command=\"${COMP_WORDS[1]}\" words=''\n"
      "  if [[ $COMP_CWORD -eq 1 ]]; then words=" +
      shell_quoted(names_of(all_commands(), 0) + " --help --version --man") + "; fi\n";
  for (const Command& command : all_commands()) {
    if (command.children.empty()) continue;
    text += "  if [[ $command == " + command.name + " ]]; then\n    if [[ $COMP_CWORD -eq 2 ]]; " +
            "then words=" + shell_quoted(names_of(command.children, command.name.size() + 1)) +
            "; fi\n    command=\"$command ${COMP_WORDS[2]}\"\n  fi\n";
  }
  text += "  if [[ -z $words ]]; then\n    case \"$command $before\" in\n";
  for (const Command& command : leaves()) {
    for (const Flag& flag : flags_with_common(command)) {
      if (flag.choices.empty()) continue;
      text += "      " + shell_quoted(command.name + " " + std::string(flag.name)) +
              ") words=" + shell_quoted(joined(flag.choices)) + " ;;\n";
    }
  }
  text += "    esac\n  fi\n  if [[ -z $words ]]; then\n    case \"$command\" in\n";
  for (const Command& command : leaves()) {
    text += "      " + shell_quoted(command.name) + ") words=" + shell_quoted(words_of(command)) +
            " ;;\n";
  }
  return text +
         "    esac\n  fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "}\n"
         "complete -o default -F _pipewright pipewright\n";
}

std::string zsh_script() {
  return "#compdef pipewright\n"
         "# zsh completion of pipewright: put this file into a folder of $fpath as _pipewright\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script();
}

std::string fish_script() {
  std::string text =
      "# fish completion of pipewright: put this file into ~/.config/fish/completions\n"
      "complete -c pipewright -n __fish_use_subcommand -l help -d 'what there is'\n"
      "complete -c pipewright -n __fish_use_subcommand -l version -d 'the version'\n";
  for (const Command& command : all_commands()) {
    text += "complete -c pipewright -f -n __fish_use_subcommand -a " + command.name + " -d " +
            shell_quoted(command.summary) + "\n";
    for (const Command& child : command.children) {
      text += "complete -c pipewright -f -n '__fish_seen_subcommand_from " + command.name +
              "' -a " + child.name.substr(command.name.size() + 1) + " -d " +
              shell_quoted(child.summary) + "\n";
    }
  }
  for (const Command& command : leaves()) {
    const std::string parent = command.name.substr(0, command.name.find(' '));
    for (const Flag& flag : flags_with_common(command)) {
      text += "complete -c pipewright -n '__fish_seen_subcommand_from " + parent + "' -l " +
              std::string(flag.name.substr(2));
      if (flag.short_name != 0) text += std::string(" -s ") + flag.short_name;
      if (!flag.argument.empty()) text += flag.is_file ? " -r" : " -x";
      if (!flag.choices.empty()) text += " -a " + shell_quoted(joined(flag.choices));
      text += " -d " + shell_quoted(flag.help) + "\n";
    }
  }
  return text;
}

int run_completions(const Arguments& arguments, Session& session) {
  const std::string shell = arguments.positionals().front();
  std::string script;
  if (shell == "bash") {
    script = bash_script();
  } else if (shell == "zsh") {
    script = zsh_script();
  } else if (shell == "fish") {
    script = fish_script();
  } else {
    throw InputError("unknown shell \"" + shell + "\"" +
                     did_you_mean(shell, {"bash", "zsh", "fish"}) +
                     "; choose one of bash, zsh, fish");
  }
  if (session.json()) {
    session.print_result({{"shell", shell}, {"script", script}});
  } else {
    session.print(script);
  }
  return kDone;
}

}  // namespace

Command completions_command() {
  Command command;
  command.name = "completions";
  command.summary = "print a completion script for a shell";
  command.examples = {
      {"completions bash > ~/.pipewright-completion", "for bash: source the file in ~/.bashrc"}};
  command.positionals = {{.name = "SHELL",
                          .help = "bash, zsh or fish",
                          .least = 1,
                          .most = 1,
                          .is_file = false,
                          .choices = {"bash", "zsh", "fish"}}};
  command.run = run_completions;
  return command;
}

}  // namespace pipewright::tools
