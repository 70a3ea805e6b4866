#include "python/what_ifs.hpp"

#include "python/bindings.hpp"

namespace pipewright::python {
namespace {

std::string words_of(const sim::WhatIf& what_if) {
  const std::string step =
      what_if.makespan_ns ? format_duration(Nanoseconds(*what_if.makespan_ns)) : "gets stuck";
  return "<WhatIf " + sim::in_words(what_if.changes) + ": " + step + ">";
}

}  // namespace

sim::WhatIf supposed(const Program& program, const CostTable& costs, const Timeline& timeline,
                     const std::string& changes) {
  const sim::TimedProgram timed(program, costs);
  return sim::what_if(timed, timeline, sim::changes_for(timed, changes, "suppose"));
}

std::vector<sim::WhatIf> what_ifs_of(const Program& program, const CostTable& costs,
                                     const Timeline& timeline) {
  return sim::what_ifs(sim::TimedProgram(program, costs), timeline);
}

void bind_what_ifs(nb::module_& module) {
  nb::class_<sim::WhatIf>(module, "WhatIf", "A step simulated with changed costs.")
      .def_prop_ro(
          "change", [](const sim::WhatIf& self) { return sim::to_string(self.changes); },
          "As suppose() takes it, such as \"rank:3=0.9\".")
      .def_prop_ro(
          "text", [](const sim::WhatIf& self) { return sim::in_words(self.changes); },
          "In words, such as \"rank 3: 10 % faster\".")
      .def_ro("makespan_ns", &sim::WhatIf::makespan_ns,
              "The step's time; None: with these costs it gets stuck.")
      .def_ro("gain_ns", &sim::WhatIf::gain_ns,
              "By how much the step is shorter; negative where it is longer.")
      .def_ro("path_ns", &sim::WhatIf::path_ns,
              "For how long what is changed is on the critical path.")
      .def("__repr__", words_of);
}

}  // namespace pipewright::python
