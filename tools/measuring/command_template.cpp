#include "tools/measuring/command_template.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kMostOfCommand = 100'000;

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == ':';
}

/// The end of a name that begins at `begin` and is followed by a brace; npos: there is none.
std::size_t end_of_name(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && is_of_name(text[end])) ++end;
  const bool is_name = end > begin && text[begin] >= 'a' && text[begin] <= 'z';
  return is_name && end < text.size() && text[end] == '}' ? end : text.npos;
}

void require_known(const std::string& name) {
  const std::vector<std::string>& names = placeholder_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  std::string list;
  for (const std::string& each : names) list += (list.empty() ? "" : ", ") + each;
  throw InputError("--measure: unknown placeholder {" + name + "}" +
                   did_you_mean(name, {names.begin(), names.end()}) + "; known are " + list +
                   " (for the shell, write {'" + name + "'})");
}

}  // namespace

const std::vector<std::string>& placeholder_names() {
  static const std::vector<std::string> kPlaceholders{"tp",
                                                      "pp",
                                                      "dp",
                                                      "cp",
                                                      "cp_comm_type",
                                                      "ep",
                                                      "etp",
                                                      "vpp",
                                                      "replicas",
                                                      "schedule",
                                                      "micro_batch",
                                                      "micro_batches",
                                                      "global_batch",
                                                      "devices",
                                                      "recompute",
                                                      "sequence_parallel",
                                                      "zero",
                                                      "rank_order",
                                                      "node_order",
                                                      "partition",
                                                      "layers",
                                                      "configuration",
                                                      "plan",
                                                      "flags:megatron",
                                                      "flags:torchtitan",
                                                      "file:pytorch-csv",
                                                      "file:megatron",
                                                      "file:torchtitan",
                                                      "file:paddle",
                                                      "file:paddle-tuner",
                                                      "file:deepspeed"};
  return kPlaceholders;
}

CommandTemplate read_command_template(std::string_view text) {
  if (text.find_first_not_of(" \t\n") == text.npos || text.size() > kMostOfCommand ||
      text.find('\0') != text.npos)
    throw InputError("--measure: expected a command for the shell");
  CommandTemplate command;
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool opens = text[at] == '{' && (at == 0 || text[at - 1] != '$');
    const std::size_t end = opens ? end_of_name(text, at + 1) : text.npos;
    if (end == text.npos) {
      plain += text[at];
      continue;
    }
    const std::string name(text.substr(at + 1, end - at - 1));
    require_known(name);
    if (!plain.empty()) command.push_back({false, std::exchange(plain, "")});
    command.push_back({true, name});
    at = end;
  }
  if (!plain.empty()) command.push_back({false, plain});
  return command;
}

bool has_placeholder(const CommandTemplate& command, std::string_view begins_with) {
  return std::any_of(command.begin(), command.end(), [&](const CommandPart& part) {
    return part.is_placeholder && part.text.starts_with(begins_with);
  });
}

std::string filled(const CommandTemplate& command,
                   const std::function<std::string(const std::string& name)>& value_of) {
  std::string text;
  for (const CommandPart& part : command)
    text += part.is_placeholder ? value_of(part.text) : part.text;
  return text;
}

}  // namespace pipewright::tools
