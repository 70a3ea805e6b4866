// A sub-command as data: its flags, its examples, what runs it. The parser, --help, the
// completions, the man page and docs/cli.md all read these tables, so that they cannot disagree.
// Plain values; text members refer to string literals.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::tools {

class Arguments;
class Session;

/// Works in a folder with this repository's README.md, docs and examples, after the examples above
/// it (tests/unit/tools/documented_commands_test.cpp).
struct Example {
  std::string_view line;         // without the leading "pipewright "
  std::string_view comment;      // what it shows; "exits with 4" where it does not end with 0
  std::string_view before = {};  // what starts it: "mpirun -np 2 "
};

/// What the command writes under the name that a flag's value gives. A file may be `-`, standard
/// output.
enum class Writes : std::uint8_t { Nothing, File, Folder, Journal };

struct Flag {
  std::string_view group;     // heading in --help
  std::string_view name;      // "--micro-batches"
  std::string_view argument;  // "M"; empty for a switch
  std::string_view help;
  char short_name = 0;  // 'o' for -o
  bool repeatable = false;
  bool is_file = false;
  /// Values to offer. If `checked`, no others are accepted.
  std::vector<std::string> choices;
  bool checked = false;
  Writes writes = Writes::Nothing;
};

inline constexpr int kAnyNumber = -1;

struct Positional {
  std::string_view name;  // "FILE"
  std::string_view help;
  int least = 0;
  int most = 1;  // or kAnyNumber
  bool is_file = true;
  std::vector<std::string> choices;
};

struct Command {
  std::string name;  // "simulate", "schedules show"
  std::string_view summary;
  std::string_view description;
  std::vector<Example> examples;
  std::vector<Positional> positionals;
  std::vector<Flag> flags;
  std::vector<Command> children;
  int (*run)(const Arguments&, Session&) = nullptr;
};

/// All sub-commands, in the order in which help lists them. Built anew by each call.
std::vector<Command> all_commands();

/// Flags that every sub-command has: --json, --color, --width, --quiet, --help.
std::vector<Flag> common_flags();

}  // namespace pipewright::tools
