// simulate --samples: the step time as an interval, from how the measurements of a profile are
// spread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/costs/distribution.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/command.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

std::vector<Flag> drawn_steps_flags();
/// Makespans of --samples simulated draws; nullopt without that flag. The subject's Program has to
/// end. Throws InputError for flags that do not go together, or a profile that does not fit.
std::optional<Distribution> drawn_steps(const Arguments& arguments, const Subject& subject);
std::string drawn_steps_text(const Distribution& steps);

}  // namespace pipewright::tools
