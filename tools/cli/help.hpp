// --help, made from the tables of tools/cli/command.hpp.
#pragma once

#include <string>

#include "tools/cli/command.hpp"
#include "tools/cli/terminal.hpp"

namespace pipewright::tools {

/// What `pipewright --help` prints: the sub-commands, first steps, the exit status.
std::string general_help(const Terminal& terminal);
/// What `pipewright simulate --help` prints: examples first.
std::string command_help(const Command& command, const Terminal& terminal);

/// The line to type.
std::string line_of(const Example& example);
/// "-o, --out FILE".
std::string flag_spelling(const Flag& flag);
/// "[FILE] [flags]".
std::string usage_of(const Command& command);
/// The flags of a command with the common ones behind them.
std::vector<Flag> flags_with_common(const Command& command);
/// The sentence of help, with the choices where there are any.
std::string help_of(const Flag& flag);

}  // namespace pipewright::tools
