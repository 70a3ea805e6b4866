#include "core/order/action.hpp"

#include <array>
#include <charconv>

#include "core/base/trimmed.hpp"

namespace pipewright {
namespace {

// By ActionKind.
constexpr std::array<std::string_view, kActionKinds> kNames = {"F",
                                                               "I",
                                                               "W",
                                                               "B",
                                                               "SEND_F",
                                                               "RECV_F",
                                                               "SEND_B",
                                                               "RECV_B",
                                                               "WAIT_SEND_F",
                                                               "WAIT_SEND_B",
                                                               "UNSHARD",
                                                               "RESHARD",
                                                               "REDUCE_GRAD",
                                                               "WAIT_REDUCE_GRAD",
                                                               "OPT",
                                                               "REDUCE_NORM",
                                                               "REDUCE_TIED",
                                                               "ALL_REDUCE",
                                                               "ALL_GATHER",
                                                               "REDUCE_SCATTER",
                                                               "ALL_TO_ALL",
                                                               "BROADCAST",
                                                               "RING_SEND",
                                                               "NEW_GROUP",
                                                               "HOST_SYNC",
                                                               "SEND",
                                                               "RECV",
                                                               "PART",
                                                               ""};

constexpr std::string_view kOverlap = "OVERLAP_F_B";

/// Takes a non-negative number off the front.
std::optional<std::int32_t> take_number(std::string_view& text) {
  std::int32_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return value;
}

std::optional<ActionKind> take_kind(std::string_view& text) {
  std::size_t length = 0;
  while (length < text.size() &&
         ((text[length] >= 'A' && text[length] <= 'Z') || text[length] == '_'))
    ++length;
  const std::string_view name = text.substr(0, length);
  for (int k = 0; k < static_cast<int>(ActionKind::Opt); ++k) {
    if (kNames[static_cast<std::size_t>(k)] != name) continue;
    text.remove_prefix(length);
    return static_cast<ActionKind>(k);
  }
  return std::nullopt;
}

std::optional<Action> parse_action(std::string_view text) {
  text = trimmed(text);
  for (const ActionKind kind : {ActionKind::Opt, ActionKind::ReduceNorm, ActionKind::ReduceTied}) {
    if (text == to_string(kind)) return Action{.kind = kind, .stage = {}, .micro_batch = {}};
  }
  if (text.empty()) return std::nullopt;
  const auto stage = take_number(text);
  if (!stage) return std::nullopt;
  const auto kind = take_kind(text);
  if (!kind || *kind == ActionKind::Opt) return std::nullopt;
  Action action{.kind = *kind, .stage = StageId(*stage), .micro_batch = {}};
  if (has_micro_batch(*kind)) {
    if (text.empty()) return std::nullopt;
    const auto micro_batch = take_number(text);
    if (!micro_batch) return std::nullopt;
    action.micro_batch = MicroBatchId(*micro_batch);
    if (!is_wait(*kind) && !text.empty() && text.front() == '@') {
      text.remove_prefix(1);
      if (text.empty()) return std::nullopt;
      const auto version = take_number(text);
      if (!version) return std::nullopt;
      action.version = *version;
    }
  }
  if (!text.empty()) return std::nullopt;
  return action;
}

}  // namespace

std::string_view to_string(ActionKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::string to_string(const Action& action) {
  if (!has_stage(action.kind)) return std::string(to_string(action.kind));
  std::string text = std::to_string(action.stage.value);
  text += to_string(action.kind);
  if (has_micro_batch(action.kind)) text += std::to_string(action.micro_batch.value);
  if (action.version >= 0) text += "@" + std::to_string(action.version);
  return text;
}

std::string to_string(const Cell& cell) {
  if (!cell.partner) return to_string(cell.action);
  std::string text = "(";
  text += to_string(cell.action);
  text += ';';
  text += to_string(*cell.partner);
  text += ')';
  text += kOverlap;
  return text;
}

std::optional<Cell> parse_cell(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.front() != '(') {
    const auto action = parse_action(text);
    if (!action) return std::nullopt;
    return Cell{*action, std::nullopt};
  }
  const auto close = text.find(')');
  if (close == std::string_view::npos || trimmed(text.substr(close + 1)) != kOverlap)
    return std::nullopt;
  const std::string_view inside = text.substr(1, close - 1);
  const auto middle = inside.find(';');
  if (middle == std::string_view::npos) return std::nullopt;
  const auto first = parse_action(inside.substr(0, middle));
  const auto second = parse_action(inside.substr(middle + 1));
  if (!first || !second || !is_compute(first->kind) || !is_compute(second->kind))
    return std::nullopt;
  return Cell{*first, second};
}

}  // namespace pipewright
