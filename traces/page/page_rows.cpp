#include "traces/page/page_rows.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {
namespace {

/// By name the rows of a rank in program order.
std::map<std::string, std::vector<std::int64_t>> rows_by_name(
    const Program& program, const std::vector<InstructionId>& rows) {
  std::vector<std::pair<InstructionId, std::int64_t>> in_order;
  for (std::size_t row = 0; row < rows.size(); ++row)
    in_order.emplace_back(rows[row], static_cast<std::int64_t>(row));
  std::sort(in_order.begin(), in_order.end());
  std::map<std::string, std::vector<std::int64_t>> named;
  for (const auto& [id, row] : in_order) {
    std::string name(program.code[id].kind == ActionKind::Part ? "part " : "");
    append_slice_name(drawn_cell(program, id), name);
    named[name].push_back(row);
  }
  return named;
}

}  // namespace

bool is_drawn_action(const Instruction& in) {
  return !in.is_communication() && !is_wait(in.kind) && !is_call(in.kind);
}

std::vector<InstructionId> drawn_actions(const Program& program, const Timeline& timeline,
                                         RankId rank) {
  const auto r = static_cast<std::size_t>(rank.value);
  std::vector<InstructionId> own;
  for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
    if (is_drawn_action(program.code[id]) && timeline.end[id] != kNotEnded) own.push_back(id);
  }
  std::stable_sort(own.begin(), own.end(), [&](InstructionId a, InstructionId b) {
    return timeline.start[a] < timeline.start[b];
  });
  return own;
}

std::vector<std::int64_t> matched_rows(const Program& program, const Timeline& timeline,
                                       const Program& other, const Timeline& other_timeline) {
  std::vector<std::int64_t> matched;
  std::int64_t others_before = 0;
  for (int r = 0; r < program.ranks(); ++r) {
    const auto rows = drawn_actions(program, timeline, RankId(r));
    const std::size_t before = matched.size();
    matched.resize(before + rows.size(), 0);
    if (r >= other.ranks()) continue;
    const auto other_rows = drawn_actions(other, other_timeline, RankId(r));
    const auto other_named = rows_by_name(other, other_rows);
    for (const auto& [name, own] : rows_by_name(program, rows)) {
      const auto found = other_named.find(name);
      if (found == other_named.end()) continue;
      for (std::size_t k = 0; k < std::min(own.size(), found->second.size()); ++k)
        matched[before + static_cast<std::size_t>(own[k])] = others_before + found->second[k] + 1;
    }
    others_before += static_cast<std::int64_t>(other_rows.size());
  }
  return matched;
}

}  // namespace pipewright::traces
