// Whether a plan's order ends where other frameworks run it as they are installed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"

namespace pipewright::planner {

/// A sentence where the order of one replica of the plan hangs, or takes wrong tensors, as the
/// framework that reads the export format ("pytorch-csv", "torchtitan": PyTorch; "megatron")
/// communicates, or is not what it runs. Empty where it ends in all of its ways, and for other
/// formats.
std::vector<std::string> stock_verdicts(const Plan& plan, std::string_view format);

/// The same for all formats that can write the plan; what no format writes runs nowhere else.
std::vector<std::string> stock_verdicts(const Plan& plan);

}  // namespace pipewright::planner
