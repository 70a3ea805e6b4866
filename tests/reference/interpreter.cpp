#include "tests/reference/interpreter.hpp"

#include "tests/reference/figures.hpp"
#include "tests/reference/lowering.hpp"
#include "tests/reference/parts.hpp"
#include "tests/reference/program.hpp"
#include "tests/reference/run.hpp"
#include "tests/reference/validity.hpp"

namespace pipewright::reference {
namespace {

void write_lists(const Order& lists, Result& result) {
  for (const Row& row : lists) {
    result.ranks.emplace_back();
    for (const Cell& cell : row)
      result.ranks.back().instructions.push_back({text(cell), std::nullopt, std::nullopt});
  }
}

void write_times(const Program& program, const Run& run, Result& result) {
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank) {
    for (std::size_t i = 0; i < program.lists[rank].size(); ++i) {
      const int id = program.lists[rank][i];
      Timed& timed = result.ranks[rank].instructions[i];
      result.ranks[rank].collective.push_back(program.instructions[id].is_member());
      if (!run.ended(id)) continue;
      timed.start = run.happened().start[id];
      timed.end = run.happened().end[id];
    }
  }
}

}  // namespace

Result interpret(const std::string& csv, const Policy& policy, const Costs& costs, bool fragment) {
  return interpret(parse_order(csv), policy, costs, fragment, parse_heading(csv));
}

Result interpret(const Order& order, const Policy& policy, const Costs& costs, bool fragment,
                 const Heading& heading) {
  Result result;
  const Order lists =
      with_parts(lower(order, policy, static_cast<std::size_t>(devices_of_rank(heading.devices))),
                 heading.parts);
  const Order apart = without_batches(lists);
  write_lists(apart, result);
  if (!fragment) result.complaint = complaint_about(add_communication(order), heading);
  if (!result.complaint.empty()) {
    result.verdict = Verdict::Invalid;
    return result;
  }
  const Program program = build_program(lists, policy, heading);
  Run run(program, policy, costs);
  run.to_the_end();
  write_times(program, run, result);
  const Stuck stuck = judge(program, run, fragment);
  result.verdict = stuck.verdict;
  result.stuck = stuck.heads;
  result.cycle = stuck.cycle;
  if (stuck.verdict == Verdict::Deadlock && !has_transfers(order)) result.cause = cause_of(program);
  result.mismatches = stuck.mismatches;
  write_figures(apart, result);
  return result;
}

}  // namespace pipewright::reference
