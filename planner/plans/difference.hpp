// How two plans differ, in words: what a reader of two plan.json files wants to know, not which
// bytes differ. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace pipewright::planner {

/// One sentence or phrase for each difference, what matters most first; none for plans that are
/// alike. "tp 1, then 2": the first plan has 1, the second 2.
std::vector<std::string> plan_differences(const Plan& first, const Plan& second);

}  // namespace pipewright::planner
