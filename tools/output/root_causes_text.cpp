#include "tools/output/root_causes_text.hpp"

#include <algorithm>

#include "core/base/units.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

using traces::RootCause;
using traces::RootOf;
using traces::RootReport;

constexpr std::size_t kListed = 20;  // roots in JSON
constexpr std::size_t kNamed = 2;    // roots of a cause in a table

Json totals_fields(const traces::RootTotals& totals) {
  Json fields = Json::object();
  for (int c = 0; c < traces::kRootCauses; ++c) {
    const auto cause = static_cast<RootCause>(c);
    fields[nanoseconds_key(to_string(cause))] = totals.of(cause);
  }
  return fields;
}

int number_of(const Program& program, const std::vector<int>& ranks, InstructionId id) {
  const int row = program.rank_of(id).value;
  return ranks.empty() ? row : ranks[static_cast<std::size_t>(row)];
}

Json root_fields(const Program& program, const std::vector<int>& ranks, const RootOf& root) {
  Json fields = {{"action", program.text(root.root)},
                 {"rank", number_of(program, ranks, root.root)},
                 {"idle_ns", root.idle_ns}};
  for (int c = 0; c < traces::kRootCauses; ++c) {
    const auto cause = static_cast<RootCause>(c);
    if (const std::int64_t ns = root.by_cause.of(cause); ns > 0)
      fields[nanoseconds_key(to_string(cause))] = ns;
  }
  return fields;
}

/// A cause, its time, and the roots that most of it has.
struct Line {
  RootCause cause = RootCause::Fill;
  std::int64_t ns = 0;
  std::string most;
};

std::string most_of(const Program& program, const std::vector<int>& ranks,
                    std::vector<RootOf>& roots, RootCause cause) {
  const auto by_cause = [cause](const RootOf& a, const RootOf& b) {
    return std::pair(-a.by_cause.of(cause), a.root) < std::pair(-b.by_cause.of(cause), b.root);
  };
  const std::size_t named = std::min(kNamed, roots.size());
  std::partial_sort(roots.begin(), roots.begin() + static_cast<std::ptrdiff_t>(named), roots.end(),
                    by_cause);
  std::string text;
  for (std::size_t i = 0; i < named && roots[i].by_cause.of(cause) > 0; ++i) {
    text += (text.empty() ? "" : ", ") + program.text(roots[i].root) + " on rank " +
            std::to_string(number_of(program, ranks, roots[i].root)) + " " +
            format_duration(Nanoseconds(roots[i].by_cause.of(cause)));
  }
  return text;
}

/// The causes that occur.
std::vector<Line> lines_of(const Program& program, const std::vector<int>& ranks,
                           const RootReport& report) {
  std::vector<RootOf> roots = by_root(program, report);
  std::vector<Line> lines;
  for (int c = 0; c < traces::kRootCauses; ++c) {
    const auto cause = static_cast<RootCause>(c);
    if (report.total.of(cause) == 0) continue;
    lines.push_back({cause, report.total.of(cause), most_of(program, ranks, roots, cause)});
  }
  return lines;
}

std::string late_text(const std::vector<int>& ranks, const std::vector<traces::LateMember>& late) {
  if (late.empty()) return "";
  const auto row = static_cast<std::size_t>(late.front().rank.value);
  return "collectives waited longest for rank " +
         std::to_string(ranks.empty() ? late.front().rank.value : ranks[row]) +
         ", which came last: " + format_duration(Nanoseconds(late.front().idle_ns)) +
         " of the other members' time\n";
}

}  // namespace

RootReport roots_of(const Step& step, const traces::BubbleReport& bubbles) {
  return traces::root_causes(step.program, step.timeline, step.costs, bubbles,
                             step.read ? &step.read->joined.trace : nullptr);
}

void add_root_fields(const Program& program, const std::vector<int>& ranks,
                     const RootReport& report, Json& fields) {
  fields["roots"] = totals_fields(report.total);
  for (std::size_t r = 0; r < report.ranks.size(); ++r)
    fields["ranks"][r]["roots"] = totals_fields(report.ranks[r]);
  Json held_up_by = Json::array();
  for (const RootOf& root : by_root(program, report)) {
    if (held_up_by.size() == kListed) break;
    held_up_by.push_back(root_fields(program, ranks, root));
  }
  fields["held_up_by"] = std::move(held_up_by);
  Json late = Json::array();
  for (const traces::LateMember& member : late_members(program, report)) {
    const auto row = static_cast<std::size_t>(member.rank.value);
    late.push_back(
        {{"rank", ranks.empty() ? member.rank.value : ranks[row]}, {"idle_ns", member.idle_ns}});
  }
  fields["late_members"] = std::move(late);
}

std::string roots_text(const Step& step, const RootReport& report, const Terminal& terminal) {
  const std::int64_t all = step.figures.makespan_ns * static_cast<std::int64_t>(step.ranks.size());
  Table table({{"idle for"}, {"share", Table::Align::Right}, {"most of it"}});
  const std::vector<Line> lines = lines_of(step.program, step.ranks, report);
  for (const Line& line : lines) {
    const double share = static_cast<double>(line.ns) / static_cast<double>(all);
    table.add({std::string(to_string(line.cause)), percent_text(share), line.most});
  }
  if (lines.empty()) return "";
  const std::string late = late_text(step.ranks, late_members(step.program, report));
  return "what the idle time comes from in the end:\n" + table.text(terminal) +
         wrapped(late, terminal.width, 0);
}

traces::PageTable roots_table(const Program& program, const std::vector<int>& ranks,
                              const RootReport& report) {
  traces::PageTable table{"Idle time by root", {"idle for", "all ranks", "most of it"}, {}};
  for (const Line& line : lines_of(program, ranks, report)) {
    table.rows.push_back(
        {std::string(to_string(line.cause)), format_duration(Nanoseconds(line.ns)), line.most});
  }
  return table;
}

}  // namespace pipewright::tools
