// The only file that includes CLI11, which is slow to compile.
#include "tools/cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::tools {
namespace {

std::vector<Flag> flags_of(const Command& command) {
  std::vector<Flag> flags = command.flags;
  for (Flag& flag : common_flags()) flags.push_back(std::move(flag));
  return flags;
}

std::string see_help(const Command& command) {
  return "see pipewright " + command.name + " --help";
}

[[noreturn]] void refuse_rest(const Command& command, const std::string& word) {
  if (word.size() > 1 && word.front() == '-') {
    const std::string name = word.substr(0, word.find('='));
    std::vector<Flag> flags = flags_of(command);
    std::vector<std::string_view> names;
    for (const Flag& flag : flags) names.push_back(flag.name);
    throw InputError("unknown flag " + name + did_you_mean(name, names) + "; " + see_help(command));
  }
  throw InputError("unexpected argument \"" + word + "\"; " + see_help(command));
}

void check_choice(const Flag& flag, const std::string& value) {
  if (!flag.checked) return;
  const auto& choices = flag.choices;
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  std::string list;
  for (const auto& choice : choices) list += (list.empty() ? "" : ", ") + choice;
  throw InputError(std::string(flag.name) + ": unknown value \"" + value + "\"" +
                   did_you_mean(value, {choices.begin(), choices.end()}) + "; choose one of " +
                   list);
}

void add_flag(CLI::App& app, const Flag& flag, Arguments& arguments) {
  std::string names(flag.name);
  if (flag.short_name != 0) names = std::string("-") + flag.short_name + "," + names;
  if (flag.argument.empty()) {
    app.add_flag_function(names, [&arguments, &flag](std::int64_t count) {
      if (count > 0) arguments.add(flag.name, "");
    });
    return;
  }
  app.add_option_function<std::vector<std::string>>(
         names,
         [&arguments, &flag](const std::vector<std::string>& values) {
           if (values.size() > 1 && !flag.repeatable) {
             throw InputError(std::string(flag.name) + " is given " +
                              std::to_string(values.size()) + " times; once is enough");
           }
           for (const auto& value : values) {
             check_choice(flag, value);
             arguments.add(flag.name, value);
           }
         })
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void check_positionals(const Command& command, const Arguments& arguments) {
  std::size_t least = 0, most = 0;
  for (const Positional& positional : command.positionals) {
    least += static_cast<std::size_t>(positional.least);
    most = positional.most == kAnyNumber ? arguments.positionals().size()
                                         : most + static_cast<std::size_t>(positional.most);
  }
  if (arguments.positionals().size() > most) {
    refuse_rest(command, arguments.positionals()[most]);
  }
  if (arguments.positionals().size() < least) {
    throw InputError("missing " + std::string(command.positionals.front().name) + "; " +
                     see_help(command));
  }
}

/// CLI11's own sentences name the flag; ours add where to look.
std::string usage_sentence(const Command& command, const CLI::ParseError& error) {
  std::string text = error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  if (error.get_name() == "ArgumentMismatch")
    text = text.substr(0, text.find(':')) + " needs a value";
  return text + "; " + see_help(command);
}

}  // namespace

Arguments parse_arguments(const Command& command, const std::vector<std::string>& words) {
  Arguments arguments(command);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const std::vector<Flag> flags = flags_of(command);
  for (const Flag& flag : flags) add_flag(app, flag, arguments);
  try {
    // CLI11 takes the words from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    throw InputError(usage_sentence(command, error));
  }
  // What no flag took: positionals, unknown flags, and everything after "--".
  const auto separator = std::find(words.begin(), words.end(), "--");
  const std::size_t plain =
      app.remaining().size() -
      std::min(app.remaining().size(), static_cast<std::size_t>(words.end() - separator));
  std::size_t at = 0;
  for (const std::string& word : app.remaining()) {
    if (word == "--" && at >= plain) {
      ++at;
      continue;
    }
    if (word.size() > 1 && word.front() == '-' && at < plain) refuse_rest(command, word);
    arguments.add_positional(word);
    ++at;
  }
  if (!arguments.has("--help")) check_positionals(command, arguments);
  return arguments;
}

}  // namespace pipewright::tools
