#include "tools/running/drawn_steps.hpp"

#include "core/base/error.hpp"
#include "core/plan/profile.hpp"
#include "planner/plans/drawn_steps.hpp"
#include "planner/plans/run_of_plan.hpp"

namespace pipewright::tools {
namespace {

constexpr int kMostSamples = 1'000'000;

Profile profile_from(const std::string& path) {
  const Json document = parse_json(read_text(path), path);
  return read_profile(JsonCursor(document, path));
}

}  // namespace

std::vector<Flag> drawn_steps_flags() {
  return {{.group = "Output",
           .name = "--samples",
           .argument = "N",
           .help = "the step time as an interval too, from N simulated steps whose durations are "
                   "drawn from the measurements of --profile"},
          {.group = "Output",
           .name = "--profile",
           .argument = "FILE",
           .help = "profile.json of the plan's model, for --samples",
           .is_file = true},
          {.group = "Output",
           .name = "--sample-seed",
           .argument = "N",
           .help = "of the first draw (1)"}};
}

std::optional<Distribution> drawn_steps(const Arguments& arguments, const Subject& subject) {
  const auto samples = arguments.integer("--samples", 1, kMostSamples);
  const auto path = arguments.text("--profile");
  if (samples.has_value() != path.has_value()) {
    throw InputError("--samples N and --profile FILE go together: how many steps, drawn from what");
  }
  if (!samples) {
    if (arguments.has("--sample-seed")) throw InputError("--sample-seed belongs to --samples");
    return std::nullopt;
  }
  if (subject.plan() == nullptr) {
    throw InputError("--samples needs a plan.json: an order does not say which layers a stage has");
  }
  const Plan& plan = *subject.plan();
  const Profile profile = profile_from(*path);
  if (profile.model_name != plan.model.name) {
    throw InputError(*path, "/model_name",
                     "is \"" + profile.model_name + "\", the plan trains \"" + plan.model.name +
                         "\"; profile that model");
  }
  Plan asked = plan;
  asked.costs = subject.costs;
  const auto seed =
      static_cast<std::uint64_t>(arguments.integer_or("--sample-seed", 0, 1'000'000'000, 1));
  std::optional<Program> devices;
  if (planner::divides_layers(asked)) devices = planner::program_of_run(asked);
  return planner::drawn_steps(asked, devices ? *devices : subject.program, profile, *samples, seed);
}

std::string drawn_steps_text(const Distribution& steps) {
  return std::to_string(steps.count) + " drawn steps: median " + format_duration(steps.median()) +
         ", 10 % to 90 % " + format_duration(steps.quantiles[1]) + " to " +
         format_duration(steps.quantiles[5]);
}

}  // namespace pipewright::tools
