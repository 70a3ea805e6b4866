// From the words of a command line to a run of one sub-command.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/arguments.hpp"
#include "tools/cli/command.hpp"

namespace pipewright::tools {

/// Reads the words after the sub-command's name. Throws InputError, with a suggestion where a flag
/// is nearly one of ours.
Arguments parse_arguments(const Command& command, const std::vector<std::string>& words);

}  // namespace pipewright::tools
