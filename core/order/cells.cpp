#include "core/order/cells.hpp"

#include <algorithm>

#include "core/base/trimmed.hpp"

namespace pipewright {
namespace {

std::vector<Cell> parse_one(std::string_view text, CallTable& calls) {
  if (auto call = parse_call(text)) return {{calls.action_of(*std::move(call)), std::nullopt}};
  if (const auto cell = parse_cell(text)) return {*cell};
  return {};
}

}  // namespace

std::string_view expected_cell() {
  return "an action such as 2F0, 1SEND_B3, (0F7;7B3)OVERLAP_F_B, (0SEND_F0;2RECV_F0)BATCH_P2P or "
         "ALL_REDUCE(tp:0)";
}

std::vector<Cell> parse_cells(std::string_view text, CallTable& calls) {
  text = trimmed(text);
  const std::size_t close = text.rfind(')');
  const bool batch = !text.empty() && text.front() == '(' && close != text.npos &&
                     trimmed(text.substr(close + 1)) == kBatchName;
  if (!batch) return parse_one(text, calls);
  std::vector<Cell> cells;
  const std::string_view inside = text.substr(1, close - 1);
  for (std::size_t begin = 0; begin <= inside.size();) {
    const std::size_t end = std::min(inside.find(';', begin), inside.size());
    const auto member = parse_one(inside.substr(begin, end - begin), calls);
    const bool is_end = !member.empty() && is_transfer(member.front().action.kind);
    if (!is_end) return {};
    cells.push_back({member.front().action, std::nullopt, true});
    begin = end + 1;
  }
  cells.back().batched = false;
  return cells;
}

std::size_t written_end(std::span<const Cell> cells, std::size_t begin) {
  while (cells[begin].batched && begin + 1 < cells.size()) ++begin;
  return begin + 1;
}

std::string to_string(std::span<const Cell> written, std::span<const Call> calls) {
  if (written.size() == 1) return to_string(written.front(), calls);
  std::string text;
  for (const Cell& cell : written) {
    text += text.empty() ? '(' : ';';
    text += to_string(cell, calls);
  }
  text += ')';
  text += kBatchName;
  return text;
}

std::string to_string(const Cell& cell, std::span<const Call> calls) {
  return cell.partner ? to_string(cell) : to_string(cell.action, calls);
}

std::string to_string(const Action& action, std::span<const Call> calls) {
  return is_call(action.kind) ? to_string(calls[static_cast<std::size_t>(action.micro_batch.value)])
                              : to_string(action);
}

}  // namespace pipewright
