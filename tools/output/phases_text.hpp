// The phases of a run (exec/runtime/phases.hpp) for people, scripts and traces.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "exec/runtime/phases.hpp"
#include "traces/chrome/trace.hpp"

namespace pipewright::tools {

/// "phases: build 1.20 ms, plan 312 ms, …"; "" if there is none.
std::string phases_text(const std::vector<exec::PhaseSpan>& spans);
Json phases_fields(const std::vector<exec::PhaseSpan>& spans);
std::vector<traces::HostPhase> host_phases(const std::vector<exec::PhaseSpan>& spans);

}  // namespace pipewright::tools
