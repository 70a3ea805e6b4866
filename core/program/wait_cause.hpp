// Why an order hangs, in its own computations (docs/semantics.md §7.2).
#pragma once

#include <vector>

#include "core/program/wait_for.hpp"

namespace pipewright {

/// Of an order that leaves its transfers to lowering: a shortest cycle of computations that wait
/// for each other however they communicate. Empty where the order has none (its transfers are to
/// blame), and where it holds transfers of its own.
std::vector<WaitStep> cause_among_computations(const Program& program);

}  // namespace pipewright
