#include "traces/chrome/slice_names.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "core/order/call.hpp"
#include "traces/chrome/torch_stages.hpp"
#include "traces/events/paddle_jobs.hpp"

namespace pipewright::traces {
namespace {

/// "F m3 s1", "F m0 s2 v3", "UNSHARD s1", "OPT", as append_slice_name() writes them.
std::optional<Action> action_of_slice_name(std::string_view name) {
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const auto space = name.find(' ');
    words.push_back(name.substr(0, space));
    name.remove_prefix(space == std::string_view::npos ? name.size() : space + 1);
  }
  for (int k = 0; k < kActionKinds && !words.empty(); ++k) {
    Action action{.kind = static_cast<ActionKind>(k), .stage = {}, .micro_batch = {}};
    if (words[0] != to_string(action.kind)) continue;
    std::size_t next = 1;
    const auto take = [&](char letter) {
      const auto value = next < words.size() ? numbered(words[next], letter) : std::nullopt;
      if (value) ++next;
      return value;
    };
    if (has_micro_batch(action.kind)) {
      const auto micro_batch = take('m');
      if (!micro_batch) return std::nullopt;
      action.micro_batch = MicroBatchId(*micro_batch);
    }
    if (has_stage(action.kind)) {
      const auto stage = take('s');
      if (!stage) return std::nullopt;
      action.stage = StageId(*stage);
    }
    if (const auto version = take('v')) action.version = *version;
    if (next == words.size()) return action;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> numbered(std::string_view word, char letter) {
  int value = 0;
  if (word.size() < 2 || word[0] != letter || word[1] == '-') return std::nullopt;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data() + 1, end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::optional<Cell> cell_of_action(std::string_view text) {
  if (const auto call = parse_call(text))
    return Cell{{.kind = call->kind, .stage = {}, .micro_batch = {}}, std::nullopt};
  return parse_cell(text);
}

bool is_backend_receive(std::string_view name) {
  const auto colon = name.find(':');
  return colon != std::string_view::npos && name.substr(colon + 1).starts_with("recv");
}

bool is_nccl_kernel(const RawEvent& event) {
  return event.category == "kernel" && event.name.starts_with("nccl");
}

bool is_operator(const RawEvent& event, bool on_gpu) {
  if (event.category != (on_gpu ? "kernel" : "cpu_op")) return false;
  return !event.name.starts_with("c10d::") && !is_nccl_kernel(event);
}

bool is_launch(const RawEvent& event) {
  return event.correlation && (event.category == "cuda_runtime" || event.category == "cuda_driver");
}

std::optional<int> marked_step_number(const RawEvent& event) {
  constexpr std::string_view kMark = "ProfilerStep#";
  if (event.category == "gpu_user_annotation" || !event.name.starts_with(kMark))
    return std::nullopt;
  return numbered(std::string_view(event.name).substr(kMark.size() - 1), '#');
}

bool is_of_use(RawEvent& event) {
  if (event.phase == "M") return event.name.find("_name") != event.name.npos || event.sort_index;
  if (is_of_torch_stages(event)) return true;
  if (is_operator(event, true) || is_operator(event, false) || is_nccl_kernel(event) ||
      is_launch(event)) {
    const bool named = cell_of_slice_name(event.name) || is_backend_receive(event.name);
    if (!named && !is_nccl_kernel(event)) event.name.clear();
    return true;
  }
  return !event.action.empty() || is_backend_receive(event.name) || marked_step_number(event) ||
         cell_of_slice_name(event.name).has_value() || is_paddle_job(event);
}

std::optional<int> rank_in_file_name(const std::string& file) {
  std::string name = file.substr(file.find_last_of('/') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::string_view kRank = "rank";
  for (auto at = name.find(kRank); at != name.npos; at = name.find(kRank, at + 1)) {
    std::string_view rest = std::string_view(name).substr(at + kRank.size());
    if (!rest.empty() && std::string_view("-_ =").find(rest.front()) != rest.npos)
      rest.remove_prefix(1);
    int rank = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), rank);
    if (error == std::errc() && rank >= 0 && rest.front() != '-') return rank;
  }
  return std::nullopt;
}

std::optional<Cell> cell_of_slice_name(std::string_view name) {
  constexpr std::string_view kTorch = "PP:";
  if (name.substr(0, kTorch.size()) == kTorch) name.remove_prefix(kTorch.size());
  if (name.starts_with("Optimizer.step#")) name = "OPT";
  if (auto cell = parse_cell(name)) return cell;
  const auto plus = name.find(" + ");
  const auto first = action_of_slice_name(name.substr(0, plus));
  if (!first) return std::nullopt;
  if (plus == std::string_view::npos) return Cell{*first, std::nullopt};
  const auto second = action_of_slice_name(name.substr(plus + 3));
  if (!second) return std::nullopt;
  return Cell{*first, *second};
}

}  // namespace pipewright::traces
