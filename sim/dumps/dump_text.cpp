#include "sim/dumps/dump_text.hpp"

#include <algorithm>

namespace pipewright::sim {
namespace {

std::string sizes_text(const Tensors& tensors) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t t = 0; t < std::min(tensors.sizes.size(), kShown); ++t) {
    text += t == 0 ? "[" : " [";
    for (std::size_t i = 0; i < tensors.sizes[t].size(); ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(tensors.sizes[t][i]);
    text += "]";
  }
  const std::size_t more = tensors.sizes.size() - std::min(tensors.sizes.size(), kShown);
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

}  // namespace

std::string ranks_text(const std::vector<RankId>& ranks) {
  constexpr std::size_t kShown = 16;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  const std::size_t shown = std::min(ranks.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == ranks.size() && i > 0;
    text += (i == 0 ? " " : is_last ? " and " : ", ") + std::to_string(ranks[i].value);
  }
  return shown == ranks.size() ? text
                               : text + " and " + std::to_string(ranks.size() - shown) + " more";
}

std::string group_text(const RecordedGroup& group) {
  const bool named = !group.description.empty() && group.description != "undefined";
  return "group " + group.name + (named ? " (" + group.description + ")" : "");
}

std::string call_name(const RecordedCall& call, const RecordedGroup& group) {
  if (!call.is_transfer)
    return call.operation + " " + std::to_string(call.number) + " of " + group_text(group);
  const bool sends = call.operation == "send";
  const auto peer = static_cast<std::size_t>(sends ? call.destination : call.source);
  return call.operation + (sends ? " to rank " : " from rank ") +
         std::to_string(group.ranks[peer].value) + " in " + group_text(group);
}

std::string tensors_text(const RecordedCall& call) {
  std::string text = sizes_text(call.inputs);
  if (call.inputs.sizes != call.outputs.sizes) {
    const std::string outputs = sizes_text(call.outputs);
    text += (text.empty() || outputs.empty() ? "" : " -> ") + outputs;
  }
  const auto& types = call.inputs.types.empty() ? call.outputs.types : call.inputs.types;
  if (!types.empty() && !text.empty()) text += " " + types.front();
  return text;
}

std::string call_text(const RecordedCall& call, const RecordedGroup& group) {
  std::string text = call_name(call, group);
  if (const std::string tensors = tensors_text(call); !tensors.empty()) text += ", " + tensors;
  text += ", " + std::string(to_string(call.state));
  return call.place.empty() ? text : text + ", at " + call.place;
}

}  // namespace pipewright::sim
