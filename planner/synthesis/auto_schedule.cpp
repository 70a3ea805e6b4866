// The registry's entry `auto`: an order that synthesis finds for the request's costs. It stands
// here because synthesis uses the other entries, and not the other way round.
#include <algorithm>
#include <limits>

#include "core/base/error.hpp"
#include "planner/base/number_text.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/synthesis/any_placement.hpp"
#include "planner/synthesis/auto_schedule.hpp"
#include "planner/synthesis/own_times.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kDefaultBudgetNs = 200'000'000;

std::string parameter(const ScheduleRequest& request, const char* key, const char* otherwise) {
  const auto found = request.parameters.find(key);
  return found == request.parameters.end() ? otherwise : found->second;
}

std::optional<std::string> refuse_placement(const ScheduleRequest& request) {
  const std::string value = parameter(request, "placement", "loop");
  if (value != "loop" && value != "v" && value != "any")
    return "the parameter placement is loop, v or any, not \"" + value + "\"";
  if (value == "v" && request.chunks != 2) {
    return "a placement in V shape puts 2 stages on each rank, not " +
           std::to_string(request.chunks) + "; use vpp 2";
  }
  if (value == "any" && request.chunks != 1) {
    return "placement any chooses how many stages a rank has; leave out vpp " +
           std::to_string(request.chunks) + ", or use placement loop";
  }
  return std::nullopt;
}

std::optional<std::string> refuse_choice(const ScheduleRequest& request, const char* key,
                                         const char* first, const char* second) {
  const std::string value = parameter(request, key, first);
  if (value == first || value == second) return std::nullopt;
  return "the parameter " + std::string(key) + " is " + first + " or " + second + ", not \"" +
         value + "\"";
}

std::optional<std::string> refuse_auto(const ScheduleRequest& request) {
  if (auto refused = refuse_placement(request)) return refused;
  if (auto refused = refuse_choice(request, "objective", "makespan", "span")) return refused;
  if (auto refused = refuse_choice(request, "backward", "split", "fused")) return refused;
  if (!positive_integer(parameter(request, "seed", "1"))) {
    return "the parameter seed is a positive whole number, not \"" +
           parameter(request, "seed", "1") + "\"";
  }
  const std::size_t stages = request.costs.stages.size();
  if (stages != 0 && stages != static_cast<std::size_t>(request.ranks * request.chunks)) {
    return "there are costs for " + std::to_string(stages) + " stages, not for the " +
           std::to_string(request.ranks * request.chunks) + " of this order";
  }
  return std::nullopt;
}

Order make_auto(const ScheduleRequest& request) {
  const SynthesisResult result = synthesise_for(request, synthesis_request(request));
  if (!result.order) throw InputError(least_limit_text(result));
  return *result.order;
}

}  // namespace

SynthesisRequest synthesis_request(const ScheduleRequest& request) {
  SynthesisRequest wanted;
  wanted.placement = parameter(request, "placement", "loop") == "v"
                         ? Placement::v_shape(request.ranks)
                         : Placement::loop(request.ranks, request.chunks);
  wanted.micro_batches = request.micro_batches;
  wanted.costs = request.costs;
  if (wanted.costs.stages.empty()) {
    wanted.costs.stages.assign(
        static_cast<std::size_t>(request.ranks * request.chunks),
        {.f = Nanoseconds(1), .i = Nanoseconds(1), .w = Nanoseconds(1), .b = Nanoseconds(2)});
  }
  wanted.with_updates = std::any_of(wanted.costs.stages.begin(), wanted.costs.stages.end(),
                                    [](const StageCosts& each) { return each.opt.value > 0; });
  if (const auto& actions = request.costs.actions) wanted.with_updates |= actions->names_updates();
  if (request.memory_limit.value > 0) wanted.memory_limit = {request.memory_limit};
  wanted.objective =
      parameter(request, "objective", "makespan") == "span" ? Objective::Span : Objective::Makespan;
  wanted.split_backward = parameter(request, "backward", "split") == "split";
  if (const auto& actions = request.costs.actions) search_what_is_named(actions->rows(), wanted);
  wanted.seed =
      static_cast<std::uint64_t>(positive_integer(parameter(request, "seed", "1")).value_or(1));
  wanted.budget_ns = kDefaultBudgetNs;
  return wanted;
}

bool chooses_placement(const ScheduleRequest& request) {
  return parameter(request, "placement", "loop") == "any";
}

SynthesisResult synthesise_for(const ScheduleRequest& request, const SynthesisRequest& wanted) {
  if (chooses_placement(request) && wanted.costs.actions != nullptr)
    throw InputError("times of single actions belong to one placement; placement any has many");
  return chooses_placement(request) ? synthesise_any_placement(wanted) : synthesise(wanted);
}

std::string least_limit_text(const SynthesisResult& result) {
  std::int64_t least = 0;
  for (const Bytes limit : result.least_limit) least = std::max(least, limit.value);
  return "no order keeps to the memory limit; the least limit that every rank can keep to is " +
         std::to_string(least) + " bytes";
}

Schedule auto_schedule() {
  Schedule entry;
  entry.name = "auto";
  entry.aliases = {"synthesis", "synthesised"};
  entry.text.summary = "an order searched for the given costs, memory and placement";
  entry.text.constraint = "any p, m, v; placement v: v = 2; placement any: v is chosen";
  entry.text.bubble = "none known: the answer comes with a lower bound";
  entry.text.memory = "at most the limit of --mem, where there is one";
  entry.text.source = "Pipewright's own (planner/synthesis)";
  entry.parameters = {"placement", "objective", "backward", "seed"};
  entry.traits.splits_backward = true;
  entry.traits.cost_driven = true;
  entry.traits.searched = true;
  entry.refusal = refuse_auto;
  entry.make = make_auto;
  return entry;
}

}  // namespace pipewright::planner
