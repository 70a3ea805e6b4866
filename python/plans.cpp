// Plans: read, written, and what they say.
#include "core/base/error.hpp"
#include "planner/plans/plan_title.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/schedules/requested.hpp"
#include "python/bindings.hpp"

namespace pipewright::python {
namespace {

GivenPlan plan_in_text(const std::string& text, const std::string& name) {
  const nb::gil_scoped_release release;
  const Json document = parse_json(text, name);
  return given_plan(read_plan(JsonCursor(document, name)));
}

GivenPlan plan_in_file(const std::filesystem::path& path) {
  const nb::gil_scoped_release release;
  return given_plan(load_plan(path.string()));
}

void save_plan(const GivenPlan& given, const std::filesystem::path& path) {
  const nb::gil_scoped_release release;
  write_file(path, to_text(to_json(given.plan)));
}

std::vector<std::pair<int, int>> layers_of(const GivenPlan& given) {
  std::vector<std::pair<int, int>> layers;
  for (const StagePlan& stage : given.plan.stages)
    layers.emplace_back(stage.first_layer, stage.end_layer);
  return layers;
}

std::vector<std::string> layer_names(const GivenPlan& given) {
  std::vector<std::string> names;
  for (const Layer& layer : given.plan.model.layers) names.push_back(layer.name);
  return names;
}

std::map<std::string, int> mesh_of(const GivenPlan& given) {
  std::map<std::string, int> sizes;
  for (const char* axis : {"pp", "dp", "tp", "ep", "cp"}) sizes[axis] = given.plan.mesh.size(axis);
  return sizes;
}

/// Of one replica.
GivenOrder order_of_replica(const GivenPlan& given) {
  GivenOrder order;
  order.order = planner::pipeline_order(given.plan);
  order.title = given.title;
  return order;
}

}  // namespace

GivenPlan given_plan(Plan plan) {
  std::string title = planner::title_of(plan);
  return {std::move(plan), std::move(title)};
}

void bind_plans(nb::module_& module) {
  nb::class_<GivenPlan>(module, "Plan",
                        "All that a run needs, and what was predicted of it (docs/plan-format.md).")
      .def_static("load", plan_in_file, nb::arg("path"), "Reads a plan.json.")
      .def_static("parse", plan_in_text, nb::arg("text"), nb::arg("name") = "plan",
                  "The same of a text; messages call it by the name.")
      .def("save", save_plan, nb::arg("path"), "As a plan.json.")
      .def(
          "to_json", [](const GivenPlan& given) { return to_text(to_json(given.plan)); },
          "The text of a plan.json (docs/schemas/plan.schema.json).")
      .def_prop_ro(
          "fields",
          [](const GivenPlan& given) { return nb::cast<nb::dict>(to_python(to_json(given.plan))); },
          "The plan.json as dicts and lists.")
      .def_prop_ro("order", order_of_replica, "What each rank of one replica computes.")
      .def_prop_ro(
          "policy", [](const GivenPlan& given) { return given.plan.policy; },
          "How its Program communicates.")
      .def_prop_ro(
          "ranks", [](const GivenPlan& given) { return given.plan.ranks(); },
          "How many ranks a pipeline has.")
      .def_prop_ro(
          "replicas", [](const GivenPlan& given) { return given.plan.replicas(); },
          "How many pipelines there are.")
      .def_prop_ro(
          "micro_batches", [](const GivenPlan& given) { return given.plan.micro_batches; },
          "How many micro-batches a step of a replica has.")
      .def_prop_ro(
          "micro_batch_size", [](const GivenPlan& given) { return given.plan.micro_batch_size; },
          "Samples of a micro-batch.")
      .def_prop_ro("layers", layers_of, "By stage: its first layer, and the one after its last.")
      .def_prop_ro("layer_names", layer_names, "Of all layers of its model.")
      .def_prop_ro("mesh", mesh_of, "How many devices there are along pp, dp, tp, ep and cp.")
      .def_prop_ro(
          "predicted_step_ns",
          [](const GivenPlan& given) { return given.plan.predicted.step.value; },
          "The step's predicted time.")
      .def_prop_ro(
          "reasons", [](const GivenPlan& given) { return given.plan.tuner.reasons; },
          "Why it was chosen, in sentences.")
      .def_ro("title", &GivenPlan::title, "The schedule, the sizes and the model.")
      .def("__repr__", [](const GivenPlan& given) { return "<Plan " + given.title + ">"; });
}

}  // namespace pipewright::python
