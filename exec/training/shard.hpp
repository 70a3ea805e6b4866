// The part of a stage's parameters that one of its replicas owns (docs/semantics.md §3.2, ZeRO
// stage 1: Rajbhandari et al., arXiv:1910.02054): it alone updates them and keeps the optimizer's
// state of them. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/gradient_part.hpp"

namespace pipewright::exec {

/// Part `index` of `count`, of all elements one after another: by parameter the elements of it
/// that are in the part, which may be none. Statistics are no weights: every replica makes them.
std::vector<ElementRange> shard_of(const std::vector<Parameter*>& parameters, std::size_t index,
                                   std::size_t count);

/// Sets what lies outside of the range to 0 in each array of the part.
void keep_only(const ElementRange& range, GradientPart& part);

}  // namespace pipewright::exec
