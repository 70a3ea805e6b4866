// pipewright compare, of two trace files.
#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/plan/profile.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/commands/compare.hpp"
#include "tools/input/fail_if.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/comparison_page.hpp"
#include "tools/output/comparison_text.hpp"
#include "tools/output/fit_text.hpp"
#include "traces/analysis/compare.hpp"
#include "traces/analysis/fit.hpp"
#include "traces/chrome/read_trace.hpp"

namespace pipewright::tools {
namespace {

/// Corrects the profile named by --fit.
void save_fitted(const Arguments& arguments, const traces::Fit& fit, Session& session) {
  const std::string from = arguments.text_or("--fit", "");
  const std::string to = arguments.text_or("--out", "");
  if (to.empty()) throw InputError("--fit also needs --out FILE: where the corrected profile goes");
  const Json document = parse_json(read_text(from), from);
  const Profile fitted = fitted_profile(read_profile(JsonCursor(document, from)), fit);
  session.save(to, to_text(to_json(fitted)));
  session.wrote(to);
}

}  // namespace

int compare_traces(const std::string& first, const std::string& second, const Arguments& arguments,
                   Session& session) {
  for (const auto& flags : {schedule_flags(), cost_flags(), policy_flags()})
    refuse_flags(arguments, flags, "belongs to schedules; two traces bring their own");
  const auto condition = fail_condition(arguments, {"step", "action", "bubble"});
  const auto predicted = traces::read_trace(first), measured = traces::read_trace(second);
  const traces::Comparison comparison = compared(predicted, measured);
  const auto fit = traces::fit(predicted, measured);
  if (arguments.has("--fit")) {
    if (!fit) {
      throw InputError(first, "", "predicts no time for any action, so there is nothing to fit");
    }
    save_fitted(arguments, *fit, session);
  }
  if (const auto path = arguments.text("--html")) {
    session.save_page(
        *path, comparison_page(step_of_trace(predicted), step_of_trace(measured), comparison));
  }
  const double bubble = comparison.bubble.difference();
  if (session.json()) {
    Json fields = comparison_fields(comparison);
    fields["bubble_difference"] = bubble;
    if (fit) fields["fit"] = fit_fields(*fit);
    session.print_result(fields);
  } else {
    session.print(comparison_text(comparison, session.terminal()));
    session.print(bubble_text(comparison, session.terminal()));
    if (fit) session.print(fit_text(*fit, session.terminal()));
  }
  if (arguments.has("--fit") && arguments.text("--out") != "-")
    session.note("next: pipewright tune job.json --profile " + arguments.text_or("--out", ""));
  const bool worse = fails(condition, {{"step", std::abs(comparison.step.error_percent()) / 100},
                                       {"action", comparison.mean_absolute_error_percent / 100},
                                       {"bubble", std::abs(bubble)}});
  if (worse) session.note("fails " + condition->text);
  return worse ? kAnswerIsNo : kDone;
}

}  // namespace pipewright::tools
