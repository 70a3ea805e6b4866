// Documents of models and profiles, as pipewright.torch makes them of what it found; and plans of
// an order of one's own, with costs from them.
#include "core/base/error.hpp"
#include "core/model/model.hpp"
#include "core/plan/profile.hpp"
#include "core/plan/profile_samples.hpp"
#include "planner/search/plan_of_order.hpp"
#include "python/bindings.hpp"

namespace pipewright::python {
namespace {

nb::object model_document(const nb::dict& document) {
  const Json json = from_python(document, "model");
  return to_python(to_json(read_model(JsonCursor(json, "model"))));
}

nb::object profile_document(const nb::dict& samples) {
  const Json json = from_python(samples, "samples");
  return to_python(to_json(profile_from(read_profile_samples(JsonCursor(json, "samples")))));
}

using Cut = std::vector<std::pair<int, int>>;

/// The number of layers of each stage.
std::vector<int> counts_of(const Cut& layers) {
  std::vector<int> counts;
  int next = 0;
  for (const auto& [first, end] : layers) {
    if (first != next || end <= first)
      throw InputError("layers: expected a stage that begins with layer " + std::to_string(next) +
                       ", found [" + std::to_string(first) + ", " + std::to_string(end) + "]");
    counts.push_back(end - first);
    next = end;
  }
  return counts;
}

GivenPlan plan_of_order(const GivenOrder& given, const nb::dict& model, const nb::dict& profile,
                        const Cut& layers, int micro_batch_size, const PolicyWord& policy) {
  if (!given.problems.empty()) throw InputError(given.title + ": " + given.problems.front());
  const Json model_json = from_python(model, "model");
  const Json profile_json = from_python(profile, "profile");
  const Profile measured = read_profile(JsonCursor(profile_json, "profile"));
  const planner::OrderSetup setup{"micro_batch_size=" + std::to_string(micro_batch_size),
                                  counts_of(layers)};
  Job job;
  job.model = read_model(JsonCursor(model_json, "model"));
  job.cluster = measured.cluster;
  job.strategy.policy = policy_of(policy);
  job.training.optimizer = "sgd";
  job.global_batch = planner::global_batch_of(given.order, job, setup);
  const nb::gil_scoped_release release;
  auto made = planner::plan_of_order(job, &measured, 0, given.order, setup);
  if (auto* whole = std::get_if<planner::PlanOfOrder>(&made))
    return given_plan(std::move(whole->plan));
  throw InputError(given.title + " does not end under this policy; check() says why");
}

}  // namespace

void bind_models(nb::module_& module) {
  module.def("model_document", model_document, nb::arg("document"),
             "A model.json as it is read and written; InputError for one that is not.");
  module.def("profile_document", profile_document, nb::arg("samples"),
             "The profile.json of times that another runtime took, in ns "
             "(core/plan/profile_samples.hpp).");
  module.def(
      "plan_of_order", plan_of_order, nb::arg("order"), nb::arg("model"), nb::arg("profile"),
      nb::arg("layers"), nb::arg("micro_batch_size"), nb::arg("policy") = "torch-gloo",
      "An order as a plan, with costs from a profile: model and profile are the dicts that would "
      "stand in their files, layers has by stage the first layer and the one after the last. On "
      "the profile's machine, in one pipeline; InputError where the order hangs.");
}

}  // namespace pipewright::python
