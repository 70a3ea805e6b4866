// explain(): why a job hangs, from the dumps of PyTorch's Flight Recorder.
#include "core/program/verdict.hpp"
#include "python/bindings.hpp"
#include "sim/dumps/dump_files.hpp"
#include "sim/dumps/explanation_text.hpp"

namespace pipewright::python {
namespace {

struct ExplanationObject {
  Json fields;  // to_json()
  std::string text;

  std::string word() const { return fields["verdict"].get<std::string>(); }
  bool ok() const { return word() == "ok"; }
};

ExplanationObject explanation_of(std::vector<sim::Dump> dumps) {
  const sim::Explanation explained = sim::explain(sim::join_dumps(std::move(dumps)));
  ExplanationObject object{to_json(explained), verdict_title(explained.report) + "\n"};
  for (const std::string& line : reasons_of(explained)) object.text += "  " + line + "\n";
  return object;
}

ExplanationObject explain_files(const std::vector<std::string>& paths) {
  const nb::gil_scoped_release release;
  return explanation_of(sim::read_dump_files(paths));
}

ExplanationObject explain_bytes(const std::map<int, nb::bytes>& by_rank) {
  std::vector<sim::Dump> dumps;
  for (const auto& [rank, bytes] : by_rank) {
    dumps.push_back(sim::read_dump({bytes.c_str(), bytes.size()},
                                   "dump of rank " + std::to_string(rank), RankId(rank)));
  }
  const nb::gil_scoped_release release;
  return explanation_of(std::move(dumps));
}

}  // namespace

void bind_explanations(nb::module_& module) {
  nb::class_<ExplanationObject>(module, "Explanation",
                                "Why a job hangs, from the dumps of its ranks.")
      .def_prop_ro("verdict", &ExplanationObject::word,
                   "\"deadlock\", \"mismatch\" (calls that meet differ) or \"ok\": nothing in the "
                   "order of calls keeps them from ending.")
      .def_prop_ro("ok", &ExplanationObject::ok, "Whether nothing hangs.")
      .def("__bool__", &ExplanationObject::ok)
      .def_prop_ro(
          "reasons",
          [](const ExplanationObject& self) {
            return self.fields["reasons"].get<std::vector<std::string>>();
          },
          "Who waits in which call for whom, who called something else, the cycle: sentences.")
      .def_prop_ro(
          "absent",
          [](const ExplanationObject& self) {
            return self.fields["absent"].get<std::vector<int>>();
          },
          "Ranks that others wait for and that wait in no call themselves.")
      .def_prop_ro(
          "fields",
          [](const ExplanationObject& self) { return nb::cast<nb::dict>(to_python(self.fields)); },
          "All of it, as the command's --json has it under \"dumps\".")
      .def("__str__", [](const ExplanationObject& self) { return self.text; })
      .def("__repr__",
           [](const ExplanationObject& self) { return "<Explanation " + self.word() + ">"; });
  module.def("explain", explain_files, nb::arg("paths"),
             "Of dumps in files, or in folders of them.");
  module.def("explain", explain_bytes, nb::arg("by_rank"), "Of dumps at hand, by rank.");
}

}  // namespace pipewright::python
