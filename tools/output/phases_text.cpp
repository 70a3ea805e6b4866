#include "tools/output/phases_text.hpp"

#include "core/base/units.hpp"

namespace pipewright::tools {

std::string phases_text(const std::vector<exec::PhaseSpan>& spans) {
  std::string text;
  for (const exec::PhaseSpan& span : spans) {
    text += (text.empty() ? "phases: " : ", ") + std::string(exec::to_string(span.phase)) + " " +
            format_duration(Nanoseconds(span.duration_ns()));
  }
  return text;
}

Json phases_fields(const std::vector<exec::PhaseSpan>& spans) {
  Json fields = Json::array();
  for (const exec::PhaseSpan& span : spans) {
    fields.push_back({{"name", exec::to_string(span.phase)}, {"ns", span.duration_ns()}});
  }
  return fields;
}

std::vector<traces::HostPhase> host_phases(const std::vector<exec::PhaseSpan>& spans) {
  std::vector<traces::HostPhase> phases;
  for (const exec::PhaseSpan& span : spans) {
    phases.push_back({std::string(exec::to_string(span.phase)), span.duration_ns()});
  }
  return phases;
}

}  // namespace pipewright::tools
