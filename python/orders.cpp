// Orders: made by schedules, read and written.
#include <filesystem>

#include "core/base/error.hpp"
#include "core/order/order_json.hpp"
#include "core/order/problems.hpp"
#include "core/order/rows.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/schedules/requested.hpp"
#include "python/bindings.hpp"

namespace pipewright::python {
namespace {

GivenOrder order_in(const std::string& text, const std::string& name, bool fragment) {
  GivenOrder given;
  given.order = read_order(text, name);
  given.fragment = fragment || given.order.fragment;
  given.order.fragment = given.fragment;
  given.problems =
      explained_by_row(problems_of(given.order, given.fragment), given.order, text, name);
  given.title = planner::title_of(given.order, name);
  return given;
}

GivenOrder load(const std::filesystem::path& path, bool fragment) {
  const nb::gil_scoped_release release;
  return order_in(read_text(path.string()), path.string(), fragment);
}

GivenOrder parse(const std::string& text, const std::string& name, bool fragment) {
  const nb::gil_scoped_release release;
  return order_in(text, name, fragment);
}

/// A file whose name ends in .json holds JSON, any other one a CSV.
void save(const GivenOrder& given, const std::filesystem::path& path) {
  const nb::gil_scoped_release release;
  write_file(path, path.extension() == ".json" ? to_text(to_json(given.order))
                                               : write_order_csv(given.order));
}

std::vector<std::vector<std::string>> rows_of(const Order& order) {
  return rows_json(order).get<std::vector<std::vector<std::string>>>();
}

std::vector<int> stages_of(const GivenOrder& given, int rank) {
  std::vector<int> stages;
  for (const StageId stage : given.order.placement.stages_of(RankId(rank)))
    stages.push_back(stage.value);
  return stages;
}

std::map<std::string, std::string> parameters_of(const nb::kwargs& options) {
  std::map<std::string, std::string> parameters;
  for (const auto& [name, value] : options)
    parameters[nb::cast<std::string>(name)] = nb::cast<std::string>(nb::str(value));
  return parameters;
}

GivenOrder make_schedule(const std::string& name, int pp, int micro_batches,
                         const std::optional<int>& vpp, const CostWords& costs,
                         const nb::kwargs& options) {
  planner::ScheduleRequest request;
  request.ranks = pp;
  request.micro_batches = micro_batches;
  request.parameters = parameters_of(options);
  const nb::gil_scoped_release release;
  const planner::Schedule& schedule =
      planner::resolve_schedule(planner::schedule_meant(name).name, request.parameters);
  request.chunks = vpp.value_or(schedule.default_chunks);
  if (schedule.traits.cost_driven) {
    if (const auto refused = planner::refusal_of(schedule, request)) throw InputError(*refused);
    GivenCosts given = costs_of(costs, planner::placement_of(schedule, request).stages());
    request.costs = std::move(given.table);
    request.memory_limit = given.memory_limit;
  }
  GivenOrder given;
  given.order = planner::make_order(schedule.name, request);
  given.title = planner::title_of(schedule, request);
  given.preset = schedule.policy;
  return given;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const planner::Schedule& schedule : planner::schedules()) names.emplace_back(schedule.name);
  return names;
}

void bind_order_class(nb::module_& module) {
  nb::class_<GivenOrder>(module, "Order", "What each rank computes, one action after the other.")
      .def_static("load", load, nb::arg("path"), nb::arg("fragment") = false,
                  "Reads a CSV in PyTorch's grammar, a row a rank, or an order.json. With fragment "
                  "the order is a part, such as a log cut out of a hang.")
      .def_static("parse", parse, nb::arg("text"), nb::arg("name") = "order",
                  nb::arg("fragment") = false, "The same of a text; messages call it by the name.")
      .def("save", save, nb::arg("path"), "As JSON where the name ends in .json, else as CSV.")
      .def(
          "to_csv", [](const GivenOrder& given) { return write_order_csv(given.order); },
          "PyTorch's grammar, a row a rank.")
      .def(
          "to_json", [](const GivenOrder& given) { return to_text(to_json(given.order)); },
          "The text of an order.json (docs/schemas/order.schema.json).")
      .def_prop_ro(
          "rows", [](const GivenOrder& given) { return rows_of(given.order); },
          "By rank, each action as text; \"\" is an idle slot.")
      .def_prop_ro(
          "ranks", [](const GivenOrder& given) { return given.order.rank_count(); },
          "How many ranks there are.")
      .def_prop_ro(
          "stages", [](const GivenOrder& given) { return given.order.stages(); },
          "How many stages there are.")
      .def_prop_ro(
          "micro_batches", [](const GivenOrder& given) { return given.order.micro_batches; },
          "How many micro-batches a step has.")
      .def("stages_of", stages_of, nb::arg("rank"), "The stages that a rank computes, ascending.")
      .def_ro("title", &GivenOrder::title, "The schedule or the file, and the sizes.")
      .def_ro("problems", &GivenOrder::problems,
              "What is wrong with it before it runs, in sentences; empty if nothing.")
      .def("__eq__",
           [](const GivenOrder& one, const GivenOrder& other) {
             return rows_of(one.order) == rows_of(other.order);
           })
      .def("__repr__", [](const GivenOrder& given) { return "<Order " + given.title + ">"; });
}

}  // namespace

void bind_orders(nb::module_& module) {
  bind_order_class(module);
  module.def("schedules", schedule_names, "The names of the schedules.");
  module.def(
      "schedule",
      [](const std::string& name, int pp, int micro_batches, const std::optional<int>& vpp,
         const std::optional<std::string>& cost, const std::optional<std::string>& mem,
         const nb::kwargs& options) {
        return make_schedule(name, pp, micro_batches, vpp, {cost, mem, {}}, options);
      },
      nb::arg("name"), nb::arg("pp"), nb::arg("micro_batches"), nb::arg("vpp") = nb::none(),
      nb::arg("cost") = nb::none(), nb::arg("mem") = nb::none(), nb::arg("options"),
      "The order of a schedule for pp ranks, with vpp stages a rank and the schedule's own "
      "options, "
      "such as group=4. cost and mem are for schedules that plan by them, as simulate() takes "
      "them.");
}

}  // namespace pipewright::python
