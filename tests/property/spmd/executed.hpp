// A graph carried out on shards, by the layouts and reshards of its completion.
#pragma once

#include "core/spmd/graph/completion.hpp"
#include "tests/property/spmd/random_graph.hpp"

namespace pipewright::spmd::test {

/// Each process computes from what it holds; what all have of a tensor has to be what the whole
/// graph computes on one process.
void expect_computes_whole(const RandomGraph& random, const Completion& completion);

}  // namespace pipewright::spmd::test
