#include "tools/input/synthesis.hpp"

#include "core/base/error.hpp"
#include "planner/synthesis/auto_schedule.hpp"
#include "tools/cli/figures.hpp"

namespace pipewright::tools {
namespace {

constexpr std::string_view kSynthesis = "Synthesis (the schedule auto)";
constexpr std::string_view kParameters[] = {"--placement", "--objective", "--seed"};

}  // namespace

std::vector<Flag> synthesis_flags() {
  return {
      {.group = kSynthesis,
       .name = "--budget",
       .argument = "TIME",
       .help =
           "how much to search: the work of an ordinary core in so much time; work is counted, no "
           "clock is read (1s; tune: everything)"},
      {.group = kSynthesis,
       .name = "--prove",
       .help = "search on until no order can be better; for small cases"},
      {.group = kSynthesis,
       .name = "--objective",
       .argument = "WHAT",
       .help = "makespan, or span: the zero-bubble papers' figure",
       .choices = {"makespan", "span"},
       .checked = true},
      {.group = kSynthesis,
       .name = "--placement",
       .argument = "SHAPE",
       .help = "loop: stage k*p+r on rank r; v: stages r and 2p-1-r; any: whatever is best, for "
               "costs of ranks",
       .choices = {"loop", "v", "any"},
       .checked = true},
      {.group = kSynthesis,
       .name = "--seed",
       .argument = "N",
       .help = "of the search; the same seed gives the same order"},
  };
}

void add_synthesis_parameters(planner::ScheduleRequest& request, const planner::Schedule& schedule,
                              const Arguments& arguments) {
  for (const std::string_view flag : kParameters) {
    const auto value = arguments.text(flag);
    if (!value) continue;
    request.parameters[std::string(flag.substr(2))] = *value;
  }
  const auto placement = request.parameters.find("placement");
  const bool v_shape = placement != request.parameters.end() && placement->second == "v";
  if (schedule.traits.searched && v_shape && !arguments.has("--vpp")) request.chunks = 2;
}

void leave_placement_open(planner::ScheduleRequest& request, const planner::Schedule& schedule,
                          const Arguments& arguments) {
  if (schedule.traits.searched && !arguments.has("--vpp"))
    request.parameters.emplace("placement", "any");
}

void settle_placement(planner::ScheduleRequest& request, const Order& order) {
  if (!planner::chooses_placement(request)) return;
  request.chunks = order.stages() / request.ranks;
  planner::SynthesisRequest chosen;
  chosen.placement = order.placement;
  request.parameters["placement"] = order.placement.looks_at_micro_batch()
                                        ? "bidirectional"
                                        : planner::scope_of(chosen).placements.front();
}

planner::SynthesisRequest with_effort(planner::SynthesisRequest request, const Arguments& arguments,
                                      Session& session) {
  request.budget_ns = arguments.duration("--budget").value_or(Nanoseconds(1'000'000'000)).value;
  request.prove = arguments.has("--prove");
  request.on_progress = [&session](const planner::SynthesisProgress& at) {
    session.progress(std::string(at.phase) + " ... " + format_duration(Nanoseconds(at.value_ns)) +
                     ", bound " + format_duration(Nanoseconds(at.lower_bound_ns)));
  };
  return request;
}

Order make_requested(const planner::Schedule& schedule, const planner::ScheduleRequest& request,
                     const Arguments& arguments, Session& session,
                     std::optional<planner::SynthesisResult>* found) {
  if (!schedule.traits.searched) return planner::make_order(schedule.name, request);
  if (const auto refused = planner::refusal_of(schedule, request)) throw InputError(*refused);
  if (!planner::chooses_placement(request) && request.chunks == 1 &&
      !arguments.has("--placement") && !arguments.has("--vpp") &&
      request.costs.actions == nullptr) {
    session.note(
        "--cost says what a stage takes, so each rank has one stage; with --rank-cost several "
        "stages a rank are tried");
  }
  auto result = planner::synthesise_for(
      request, with_effort(planner::synthesis_request(request), arguments, session));
  session.clear_progress();
  if (!result.order) throw InputError(planner::least_limit_text(result));
  Order order = *result.order;
  if (found != nullptr) *found = std::move(result);
  return order;
}

std::string synthesis_text(const planner::SynthesisResult& result) {
  const std::string scope = planner::to_text(result.scope);
  const bool is_named =
      result.found_by == result.best_named && result.value_ns == result.best_named_ns;
  std::string text = "synthesis: " + std::string(planner::to_string(result.objective)) + " " +
                     format_duration(Nanoseconds(result.value_ns)) +
                     (is_named ? ", the order of " : ", begun from ") + result.found_by + ", " +
                     std::to_string(result.evaluated) + " orders timed in " +
                     format_duration(Nanoseconds(result.elapsed_ns));
  if (result.proven) {
    text += "; proved for " + scope + ": no order takes less";
  } else {
    text += "; for " + scope + ": no order takes less than " +
            format_duration(Nanoseconds(result.lower_bound_ns)) + " (gap " +
            percent_text(result.gap) + ")";
  }
  if (!result.best_named.empty()) {
    text += "; best named schedule under this limit: " + result.best_named + ", " +
            (result.best_named_chunks > 1
                 ? std::to_string(result.best_named_chunks) + " stages a rank, "
                 : "") +
            format_duration(Nanoseconds(result.best_named_ns));
  }
  return text + "\n";
}

Json synthesis_fields(const planner::SynthesisResult& result) {
  return {{"objective", std::string(planner::to_string(result.objective))},
          {"value_ns", result.value_ns},
          {"lower_bound_ns", result.lower_bound_ns},
          {"gap", result.gap},
          {"proven", result.proven},
          {"scope",
           {{"text", planner::to_text(result.scope)},
            {"placements", result.scope.placements},
            {"least_stages_a_rank", result.scope.least_chunks},
            {"most_stages_a_rank", result.scope.most_chunks}}},
          {"found_by", result.found_by},
          {"best_named", result.best_named},
          {"best_named_ns", result.best_named_ns},
          {"best_named_vpp", result.best_named_chunks},
          {"evaluated", result.evaluated},
          {"elapsed_ns", result.elapsed_ns},
          {"cut_short", false}};  // work is counted, and done to its end
}

}  // namespace pipewright::tools
