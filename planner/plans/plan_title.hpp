// A plan in a line.
#pragma once

#include <string>

#include "core/plan/plan.hpp"

namespace pipewright::planner {

/// "1f1b: p=4 m=8 dp=2, model gpt": sizes that are 1 are left out.
std::string title_of(const Plan& plan);

}  // namespace pipewright::planner
