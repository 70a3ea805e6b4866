// The part of a stage's parameters that one of its replicas owns (docs/semantics.md §3.2, ZeRO
// stage 1: Rajbhandari et al., arXiv:1910.02054): it alone updates them and keeps the optimizer's
// state of them. Pure functions on parameters that the caller owns.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/gradient_part.hpp"

namespace pipewright::exec::cpu {

/// What the optimizer trains: all but statistics.
std::vector<Parameter*> weights_of(const std::vector<Parameter*>& parameters);

/// Part `index` of `count`, of all elements one after another: by parameter the elements of it
/// that are in the part, which may be none. Statistics are no weights: every replica makes them.
std::vector<ElementRange> shard_of(const std::vector<Parameter*>& parameters, std::size_t index,
                                   std::size_t count);

/// What an UNSHARD hands out: by parameter the values in the ranges, and after them, if asked for,
/// the gradients, by parameter too.
GradientPart shard_part(const std::vector<Parameter*>& parameters,
                        const std::vector<ElementRange>& ranges, bool with_gradients);
/// Writes another replica's part back. Throws RunError if it is not that of these ranges.
void take_shard(const std::vector<Parameter*>& parameters, const std::vector<ElementRange>& ranges,
                const GradientPart& part);

}  // namespace pipewright::exec::cpu
