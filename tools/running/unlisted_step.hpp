// simulate of a schedule with so many micro-batches that its actions are not listed: the steady
// state is skipped.
#pragma once

#include <optional>

#include "planner/plans/long_step.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// `subject` has no order, and of its Program the policy alone.
struct UnlistedStep {
  Subject subject;
  planner::LongStep step;
};

/// nullopt: the command goes the long way, because the step is short, because a flag asks for all
/// of its actions, or because it has no steady state, which a note says. Throws InputError for a
/// step that is too long for that: with the size that it would have, or the reason.
std::optional<UnlistedStep> unlisted_step(const Arguments& arguments, Session& session);
/// "127 of 1000000000 micro-batches were simulated; from there on each takes 3.00 ms, …"
std::string unlisted_text(const UnlistedStep& unlisted);

}  // namespace pipewright::tools
