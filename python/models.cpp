// Documents of models and profiles, as pipewright.torch makes them of what it found; and plans of
// an order of one's own, with costs from them.
#include "core/base/error.hpp"
#include "core/model/model.hpp"
#include "core/plan/profile.hpp"
#include "core/plan/profile_samples.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/plans/program_of_plan.hpp"
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

std::vector<StagePlan> cut_stages(const GivenOrder& given, const Cut& layers) {
  const Order& order = given.order;
  if (layers.size() != static_cast<std::size_t>(order.stages()))
    throw InputError(given.title + " has " + std::to_string(order.stages()) +
                     " stages, and layers of " + std::to_string(layers.size()) + " were given");
  std::vector<StagePlan> stages;
  for (int s = 0; s < order.stages(); ++s) {
    const auto [first, end] = layers[static_cast<std::size_t>(s)];
    stages.push_back({first, end, order.placement.rank_of(StageId(s), MicroBatchId(0))});
  }
  return stages;
}

/// Read as a plan.json is, so that what does not fit together is refused as there.
GivenPlan plan_of_order(const GivenOrder& given, const nb::dict& model, const nb::dict& profile,
                        const Cut& layers, int micro_batch_size, const PolicyWord& policy) {
  if (!given.problems.empty()) throw InputError(given.title + ": " + given.problems.front());
  const Json model_json = from_python(model, "model");
  const Json profile_json = from_python(profile, "profile");
  const Profile measured = read_profile(JsonCursor(profile_json, "profile"));
  Plan plan;
  plan.model = read_model(JsonCursor(model_json, "model"));
  plan.cluster = measured.cluster;
  plan.mesh = Mesh::pipeline(static_cast<int>(given.order.ranks.size()));
  plan.micro_batches = given.order.micro_batches;
  plan.micro_batch_size = micro_batch_size;
  plan.stages = cut_stages(given, layers);
  plan.schedule = {.name = "custom", .chunks = 1, .parameters = {}, .order = given.order};
  plan.policy = policy_of(policy);
  plan.training.optimizer = "sgd";
  const planner::CostModel costs(plan.model, plan.cluster, &measured);
  if (const auto refusal = costs.refusal(micro_batch_size)) throw InputError(*refusal);
  plan.costs.stages.resize(plan.stages.size());
  const Json unpriced = to_json(plan);
  plan = read_plan(JsonCursor(unpriced, given.title));
  plan.costs = costs.table(plan.stages, plan.ranks(), micro_batch_size, plan.training.optimizer);
  planner::fill_prediction(plan);
  return given_plan(std::move(plan));
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
      "the profile's machine, in one pipeline; predicted_step_ns is 0 where the order hangs.");
}

}  // namespace pipewright::python
