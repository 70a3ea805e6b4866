#include "tools/running/unlisted_step.hpp"

#include <limits>

#include "core/base/error.hpp"
#include "core/costs/action_times.hpp"
#include "core/costs/cost_text.hpp"
#include "planner/schedules/requested.hpp"

namespace pipewright::tools {
namespace {

/// Below that a step with all of its actions takes a fraction of a second, and its picture is worth
/// something.
constexpr double kFewActions = 1e6;
/// What an instruction takes in a Program and a Timeline: 16 bytes and three times.
constexpr double kBytesOfInstruction = 40;

/// The flag that asks for every action; nullptr: none does.
const char* lists_actions(const Arguments& arguments) {
  for (const char* flag :
       {"--trace", "--svg", "--html", "--emit-order", "--what-if", "--suppose"}) {
    if (arguments.has(flag)) return flag;
  }
  return nullptr;
}

/// Costs of single actions, replicas and whole files are simulated as they are.
bool asks_for_the_long_way(const Arguments& arguments) {
  if (!arguments.has("--schedule") || !arguments.positionals().empty()) return true;
  for (const char* flag :
       {"--costs", "--dp", "--samples", "--expand", "--fragment", "--megatron"}) {
    if (arguments.has(flag)) return true;
  }
  return false;
}

[[noreturn]] void refuse_listing(const std::string& flag, const planner::LongStep& step) {
  const double bytes = kBytesOfInstruction * static_cast<double>(step.instructions);
  throw InputError(flag + " needs each of " + std::to_string(step.instructions) +
                   " instructions, at least " +
                   format_bytes(Bytes(bytes < 9e18 ? static_cast<std::int64_t>(bytes)
                                                   : std::numeric_limits<std::int64_t>::max())) +
                   " of memory; use fewer micro-batches, or leave it out for the figures alone");
}

Subject subject_of_request(const planner::Schedule& schedule,
                           const planner::ScheduleRequest& request, const Arguments& arguments) {
  Subject subject;
  subject.source = "--schedule " + std::string(schedule.name);
  subject.title = planner::title_of(schedule, request);
  GivenCosts costs = given_costs(arguments, planner::placement_of(schedule, request));
  subject.costs = std::move(costs.table);
  subject.costs_text = costs_text(subject.costs) + assumed_text(arguments);
  subject.memory_limit = costs.memory_limit;
  subject.lowering = {.optimizer = times_updates(subject.costs)};
  subject.program.policy = policy_from(arguments, comm_policy_preset("ideal"));
  subject.given = NamedSchedule{&schedule, request};
  return subject;
}

}  // namespace

std::optional<UnlistedStep> unlisted_step(const Arguments& arguments, Session& session) {
  if (asks_for_the_long_way(arguments)) return std::nullopt;
  const planner::Schedule& schedule = planner::schedule_meant(*arguments.text("--schedule"));
  if (schedule.traits.searched || schedule.traits.cost_driven) return std::nullopt;
  const planner::ScheduleRequest request = schedule_request(arguments, schedule);
  const double actions =
      3.0 * request.ranks * request.chunks * static_cast<double>(request.micro_batches);
  const char* const lists = lists_actions(arguments);
  const bool is_too_long = planner::refusal_of(schedule, request).has_value();
  // Where its replicas stand only the order says, which is then refused.
  if (is_too_long && schedule.layout == planner::Layout::Replicas) return std::nullopt;
  if (actions < kFewActions || (lists != nullptr && !is_too_long)) return std::nullopt;
  const planner::Schedule& resolved = planner::resolve_schedule(schedule.name, request.parameters);
  if (std::int64_t{request.ranks} * request.chunks > 65535) return std::nullopt;  // it is refused
  UnlistedStep unlisted{subject_of_request(schedule, request, arguments), {}};
  auto answer = planner::long_step(resolved, request, unlisted.subject.costs,
                                   unlisted.subject.program.policy, unlisted.subject.lowering);
  if (!answer.step) {
    const std::string why = "the steady state cannot be skipped: " + answer.why_not;
    if (is_too_long) throw InputError(*planner::refusal_of(schedule, request) + "; " + why);
    session.note(why);
    return std::nullopt;
  }
  if (lists != nullptr) refuse_listing(lists, *answer.step);
  named_schedule(*arguments.text("--schedule"), session);  // for its note
  unlisted.step = *std::move(answer.step);
  return unlisted;
}

std::string unlisted_text(const UnlistedStep& unlisted) {
  const planner::LongStep& step = unlisted.step;
  const std::string each = step.micro_batches == 1 ? "each micro-batch takes "
                                                   : "every " + std::to_string(step.micro_batches) +
                                                         " micro-batches take ";
  return "the steady state was skipped: " + each +
         format_duration(Nanoseconds(step.repetition_ns)) + ", " +
         std::to_string(step.repetitions) + " times; " + std::to_string(step.simulated) +
         " micro-batches were simulated, " + std::to_string(step.instructions) +
         " instructions have these figures (no timeline is drawn)\n";
}

}  // namespace pipewright::tools
