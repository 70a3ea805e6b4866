// Of which configurations, of one job or of several, evaluate() says the same. A pure function.
#pragma once

#include <string>

#include "planner/branches/evaluation.hpp"

namespace pipewright::planner {

/// A key of all that evaluate() reads of a branch that is not left out: configuration, stages,
/// costs, policy, what lowering does for the update, and limits of memory where the order depends
/// on them or ranks have their own. Elsewhere limits only decide whether what it holds is too much.
std::string evaluation_key(const Job& job, const ConfigurationCosts& costs,
                           const ChosenBranch& chosen);

}  // namespace pipewright::planner
