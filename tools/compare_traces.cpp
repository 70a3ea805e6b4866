// pipewright compare, of two trace files.
#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "tools/compare.hpp"
#include "tools/comparison_text.hpp"
#include "tools/exit_status.hpp"
#include "tools/fail_if.hpp"
#include "tools/figures.hpp"
#include "traces/compare.hpp"
#include "traces/read_trace.hpp"

namespace pipewright::tools {
namespace {

double bubble_ratio(const traces::TraceTimeline& trace) {
  if (trace.makespan_ns == 0 || trace.ranks.empty()) return 0;
  double busy = 0;
  for (const auto& rank : trace.ranks) busy += static_cast<double>(traces::busy_ns(rank));
  return 1 -
         busy / (static_cast<double>(trace.ranks.size()) * static_cast<double>(trace.makespan_ns));
}

}  // namespace

int compare_traces(const std::string& first, const std::string& second, const Arguments& arguments,
                   Session& session) {
  for (const char* flag : {"--pp", "--micro-batches", "--vpp", "--cost", "--mem", "--preset"}) {
    if (arguments.has(flag)) {
      throw InputError(std::string(flag) + " belongs to schedules; two traces bring their own");
    }
  }
  const auto condition = fail_condition(arguments, {"step", "action", "bubble"});
  const auto predicted = traces::read_trace(first), measured = traces::read_trace(second);
  const traces::Comparison comparison = traces::compare(predicted, measured);
  if (comparison.compared_actions == 0) {
    throw InputError(
        second, "",
        "has no action in common with " + first + "; compare two traces of the same plan");
  }
  const double bubble = bubble_ratio(predicted) - bubble_ratio(measured);
  if (session.json()) {
    Json fields = comparison_fields(comparison);
    fields["bubble_difference"] = bubble;
    session.print_result(fields);
  } else {
    session.print(comparison_text(comparison, session.terminal()));
    session.print("bubble  predicted " + percent_text(bubble_ratio(predicted)) + ", measured " +
                  percent_text(bubble_ratio(measured)) + "\n");
  }
  const bool worse = fails(condition, {{"step", std::abs(comparison.step.error_percent()) / 100},
                                       {"action", comparison.mean_absolute_error_percent / 100},
                                       {"bubble", std::abs(bubble)}});
  if (worse) session.note("fails " + condition->text);
  return worse ? kAnswerIsNo : kDone;
}

}  // namespace pipewright::tools
