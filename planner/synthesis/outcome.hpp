// From a search to its result.
#pragma once

#include <vector>

#include "planner/synthesis/named.hpp"
#include "planner/synthesis/search.hpp"
#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner::synthesis {

/// By rank, the limits that would do, if one of the problem's does not; else empty.
std::vector<Bytes> limits_too_low(const Problem& problem);

/// A value against its bound.
double gap_of(std::int64_t value, std::int64_t bound);

/// The best order of a search that has one, and what was the best before it.
SynthesisResult result_of(Search& search);

/// Puts a named order that no sequence is as good as in the result's place; bounds of sequences do
/// not hold for it.
void take_named(SynthesisResult& result, const SynthesisRequest& request, NamedBest& named);

}  // namespace pipewright::planner::synthesis
