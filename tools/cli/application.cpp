#include "tools/cli/application.hpp"

#include <exception>
#include <new>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "tools/cli/command_line.hpp"
#include "tools/cli/complaint.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/help.hpp"
#include "tools/cli/manual.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {
namespace {

using Words = std::vector<std::string>;

const Command* find(const std::vector<Command>& commands, const std::string& name) {
  for (const Command& command : commands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

[[noreturn]] void refuse_name(const std::vector<Command>& commands, const std::string& parent,
                              const std::string& word) {
  std::vector<std::string_view> names;
  std::string list;
  for (const Command& command : commands) {
    const std::size_t skip = parent.empty() ? 0 : parent.size() + 1;
    names.push_back(std::string_view(command.name).substr(skip));
    list += (list.empty() ? "" : ", ") + std::string(names.back());
  }
  if (!word.empty() && word.front() == '-') {
    throw InputError("unknown flag " + word + "; flags come after a command, one of " + list);
  }
  if (word.empty()) throw InputError("expected one of its commands: " + list);
  throw InputError("unknown command \"" + word + "\"" + did_you_mean(word, names) +
                   "; the commands " + (parent.empty() ? "" : "of " + parent + " ") + "are " +
                   list);
}

/// Takes the name of the sub-command off the words. `commands` must outlive the result.
const Command& take_command(const std::vector<Command>& commands, Words& words) {
  const Command* command = find(commands, words.front());
  if (command == nullptr) refuse_name(commands, "", words.front());
  words.erase(words.begin());
  if (command->children.empty()) return *command;
  if (words.empty() || words.front() == "--help" || words.front() == "-h") return *command;
  const Command* child = find(command->children, command->name + " " + words.front());
  if (child == nullptr) refuse_name(command->children, command->name, words.front());
  words.erase(words.begin());
  return *child;
}

/// Output flags that are given "-": at most one file may have standard output, and it alone.
void settle_standard_output(const Command& command, const Arguments& arguments, Session& session) {
  std::string taken;
  for (const Flag& flag : command.flags) {
    const std::string name(flag.name);
    if (flag.writes == Writes::Nothing || arguments.text_or(flag.name, "") != "-") continue;
    if (flag.writes != Writes::File) {
      throw InputError(name + ": \"-\" is standard output, which is no " +
                       (flag.writes == Writes::Folder ? "folder" : "journal to go on with") +
                       "; give a name");
    }
    if (!taken.empty() || session.json()) {
      throw InputError(name + " - and " + (session.json() ? "--json" : taken + " -") +
                       " both want standard output; give a file for one of them");
    }
    taken = name;
  }
  if (!taken.empty()) session.give_stdout_to_a_file();
}

int run_command_words(Words words) {
  const std::vector<Command> commands = all_commands();
  const Command& command = take_command(commands, words);
  const Arguments arguments = parse_arguments(command, words);
  Terminal terminal = look_at_terminal(arguments.text_or("--color", "auto"));
  terminal.width = arguments.integer_or("--width", 40, 1000, terminal.width);
  Session session(std::move(terminal), arguments.has("--json"), arguments.has("--quiet"));
  int status = kDone;
  if (arguments.has("--help")) {
    session.print(command_help(command, session.terminal()));
  } else if (command.run == nullptr) {
    refuse_name(command.children, command.name, "");
  } else {
    settle_standard_output(command, arguments, session);
    status = command.run(arguments, session);
  }
  session.flush();
  return status;
}

int print_and_leave(const std::string& text) {
  Session session(look_at_terminal("auto"), false, false);
  session.print(text);
  session.flush();
  return kDone;
}

int dispatch(Words words) {
  if (words.empty()) {
    Session session(look_at_terminal("auto"), false, false);
    session.note("pipewright: no command given; see pipewright --help");
    return kBadInput;
  }
  const std::string first = words.front();
  if (first == "--version") return print_and_leave("pipewright " PIPEWRIGHT_VERSION "\n");
  if (first == "--man") return print_and_leave(manual_page());
  if (first == "--markdown") return print_and_leave(markdown_reference());
  if (first == "help" && words.size() > 1) {
    words.erase(words.begin());
    words.emplace_back("--help");
  } else if (first == "help" || first == "--help" || first == "-h") {
    return print_and_leave(general_help(look_at_terminal("auto")));
  }
  return run_command_words(std::move(words));
}

/// "pipewright run"; "pipewright" alone for no command, and without memory to look it up.
std::string name_of(const Words& words) {
  try {
    if (!words.empty() && find(all_commands(), words.front()) != nullptr)
      return "pipewright " + words.front();
  } catch (const std::bad_alloc&) {
  }
  return "pipewright";
}

int complain(const Words& words, const std::string& what, int status) {
  Session session(look_at_terminal("never"), false, false);
  session.note(name_of(words) + ": " + what);
  return status;
}

}  // namespace

int run_application(const Words& words) {
  try {
    return dispatch(words);
  } catch (const std::exception&) {
    const Complaint complaint = complaint_of(std::current_exception());
    return complain(words, complaint.text, complaint.status);
  }
}

}  // namespace pipewright::tools
