#include "tools/running/run_request.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "tools/running/data_flags.hpp"
#include "tools/running/modules.hpp"

namespace pipewright::tools {
namespace {

constexpr int kMostSteps = 1'000'000'000;
constexpr int kMostEntries = 1'000'000;

/// Throws InputError for values that do not fit.
RankRequest rank_request(const Arguments& arguments) {
  RankRequest request;
  if (arguments.text_or("--clock", "wall") == "virtual")
    request.clock = exec::local::ClockKind::Virtual;
  if (const auto steps = arguments.integer("--steps", 1, kMostSteps))
    request.steps = static_cast<int>(*steps);
  request.verify_payloads = arguments.has("--verify-payloads");
  if (const auto patience = arguments.duration("--watchdog")) {
    if (patience->value == 0) throw InputError("--watchdog: expected more than 0, such as 30s");
    request.watchdog_ns = patience->value;
  }
  request.flight_entries =
      arguments.integer_or("--flight-recorder", 0, kMostEntries, request.flight_entries);
  return request;
}

TrainingRequest training_request(const Arguments& arguments) {
  TrainingRequest request;
  request.data = data_request(arguments);
  request.verify = arguments.has("--verify");
  request.checkpoints = checkpoint_request(arguments);
  request.forward = forward_request(arguments);
  if (arguments.text_or("--numerics", "fast") == "exact") request.numerics = exec::Numerics::Exact;
  return request;
}

/// nullopt on the paced device, which computes nothing. Throws InputError for flags that the device
/// does not know.
std::optional<TrainingRequest> request_of_device(const std::string& device,
                                                 const Arguments& arguments,
                                                 const Subject& subject) {
  TrainingRequest request = training_request(arguments);
  if (device != "paced") {
    if (subject.plan() == nullptr) {
      throw InputError(subject.source, "",
                       "an order says nothing of a model to train; give a plan.json, or --device "
                       "paced");
    }
    for (const auto& flags : {cost_flags(), {action_times_flag()}})
      refuse_flags(arguments, flags, "belongs to --device paced; a training has its own");
    if (device == "cuda") request.cuda = cuda_request(arguments, subject);
    return request;
  }
  if (request.checkpoints.any())
    throw InputError("checkpoints belong to --device cpu and cuda; paced trains nothing");
  for (const char* flag : {"--verify", "--data", "--numerics", "--output"}) {
    if (!arguments.has(flag)) continue;
    throw InputError(std::string(flag) + " belongs to --device cpu; paced computes nothing");
  }
  return std::nullopt;
}

}  // namespace

RunRequest run_request(const Arguments& arguments, const Subject& subject) {
  const bool has_plan = subject.plan() != nullptr;
  const std::string device = device_name(arguments, has_plan ? "cpu" : "paced");
  if (!has_plan) {  // with a plan, train() checks what it needs
    require_transport(arguments.text_or("--transport", "local"));
    require_device(device);
  }
  RankRequest ranks = rank_request(arguments);
  return {std::move(ranks), request_of_device(device, arguments, subject)};
}

}  // namespace pipewright::tools
