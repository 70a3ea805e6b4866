// A launch command with placeholders for what a configuration sets: "torchrun train.py --tp {tp}
// {flags:megatron}". Pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::tools {

struct CommandPart {
  bool is_placeholder = false;
  std::string text;  // of a placeholder its name, without braces
};
using CommandTemplate = std::vector<CommandPart>;

/// A placeholder is a known name in braces; "${" belongs to the shell, and braces around anything
/// that is no name (awk '{print $1}') stay. Throws InputError for an empty command and for a name
/// that is not known, with the nearest one.
CommandTemplate read_command_template(std::string_view text);

/// "tp", …, "flags:megatron", "file:deepspeed": all there are.
const std::vector<std::string>& placeholder_names();

bool has_placeholder(const CommandTemplate& command, std::string_view begins_with);

/// The command with what `value_of` says of each placeholder.
std::string filled(const CommandTemplate& command,
                   const std::function<std::string(const std::string& name)>& value_of);

}  // namespace pipewright::tools
