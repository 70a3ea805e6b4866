// Flags and words of synthesis, for `simulate --schedule auto`, `compare`, `schedules` and `tune
// --synthesise`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/order/order.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// --budget, --prove, --objective, --placement, --seed.
std::vector<Flag> synthesis_flags();
/// --placement, --objective and --seed as parameters, which only the schedule auto knows; with it
/// --placement v also sets two chunks.
void add_synthesis_parameters(planner::ScheduleRequest& request, const planner::Schedule& schedule,
                              const Arguments& arguments);
/// Lets the schedule auto choose how many stages a rank has, and where, unless --vpp or --placement
/// say it.
void leave_placement_open(planner::ScheduleRequest& request, const planner::Schedule& schedule,
                          const Arguments& arguments);
/// Puts what was chosen in the place of the choice.
void settle_placement(planner::ScheduleRequest& request, const Order& order);
/// Budget, proof and progress of the flags.
planner::SynthesisRequest with_effort(planner::SynthesisRequest request, const Arguments& arguments,
                                      Session& session);
/// The order of a schedule of the registry. That of auto is searched for, with the flags' effort;
/// `found`, if there is one, then has the bound. Throws InputError for what is refused, and with
/// the least limit where no order keeps to it.
Order make_requested(const planner::Schedule& schedule, const planner::ScheduleRequest& request,
                     const Arguments& arguments, Session& session,
                     std::optional<planner::SynthesisResult>* found = nullptr);

/// "27.0 ms, begun from list scheduling, …; no order of one stage a rank, loop placement, takes
/// less than 26.0 ms (gap 3.8 %)".
std::string synthesis_text(const planner::SynthesisResult& result);
Json synthesis_fields(const planner::SynthesisResult& result);

}  // namespace pipewright::tools
