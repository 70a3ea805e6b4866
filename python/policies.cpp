// Communication policies: presets by name, and changed ones.
#include "core/order/comm_policy_json.hpp"
#include "core/order/comm_policy_text.hpp"
#include "python/bindings.hpp"

namespace pipewright::python {
namespace {

/// Fields as job and plan files have them (docs/plan-format.md).
Json fields_json(const nb::kwargs& fields) {
  Json json = Json::object();
  for (const auto& [name, value] : fields) {
    const std::string key = nb::cast<std::string>(name);
    if (nb::isinstance<nb::int_>(value))
      json[key] = nb::cast<std::int64_t>(value);
    else
      json[key] = nb::cast<std::string>(value);
  }
  return json;
}

CommPolicy make_policy(const std::optional<std::string>& preset, const nb::kwargs& fields) {
  Json json = fields_json(fields);
  if (preset) json["preset"] = *preset;
  return read_comm_policy(JsonCursor(json, "Policy"));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const CommPolicyPreset& preset : comm_policy_presets()) names.emplace_back(preset.name);
  return names;
}

}  // namespace

CommPolicy policy_of(const PolicyWord& word) {
  if (const auto* name = std::get_if<std::string>(&word)) return comm_policy_preset(*name);
  return std::get<CommPolicy>(word);
}

void bind_policies(nb::module_& module) {
  nb::class_<CommPolicy>(module, "Policy",
                         "How a Program communicates (docs/semantics.md, sections 1.2 to 4).")
      .def(
          "__init__",
          [](CommPolicy* self, const std::optional<std::string>& preset, const nb::kwargs& fields) {
            new (self) CommPolicy(make_policy(preset, fields));
          },
          nb::arg("preset") = nb::none(), nb::arg("fields"),
          "A preset, changed by fields: issue, channel, post, run_order, send_f, send_b, connect, "
          "buffers, in_flight, batches, device_queues. Without a preset what NCCL guarantees.")
      .def_prop_ro(
          "name", [](const CommPolicy& policy) { return std::string(name_of(policy)); },
          "The preset's name, or \"custom\".")
      .def_prop_ro(
          "fields",
          [](const CommPolicy& policy) { return nb::cast<nb::dict>(to_python(to_json(policy))); },
          "The fields as plan files have them.")
      .def("__eq__", [](const CommPolicy& one, const CommPolicy& other) { return one == other; })
      .def("__repr__",
           [](const CommPolicy& policy) { return "<Policy " + policy_text(policy) + ">"; });
  module.def("policies", preset_names, "The names of the presets.");
}

}  // namespace pipewright::python
