// What a step would take if something were faster, as Python holds it.
#pragma once

#include <string>
#include <vector>

#include "sim/what_if/what_if.hpp"

namespace pipewright::python {

/// Throws InputError for a change that the command's --suppose refuses.
sim::WhatIf supposed(const Program& program, const CostTable& costs, const Timeline& timeline,
                     const std::string& changes);
/// What is worth knowing, by gain.
std::vector<sim::WhatIf> what_ifs_of(const Program& program, const CostTable& costs,
                                     const Timeline& timeline);

}  // namespace pipewright::python
