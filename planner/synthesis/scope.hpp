// Which orders the lower bound and the proof of a synthesis cover. Plain data and pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/order/placement.hpp"

namespace pipewright::planner {

struct SynthesisRequest;

struct BoundScope {
  std::vector<std::string> placements;    // "loop", "v", "waves", "explicit"
  int least_chunks = 1, most_chunks = 1;  // stages a rank; of an explicit one all its stages
  std::string orders;                     // "": all; else which alone, such as "orders of F and B"
};

/// Each stage is on the same rank in both; micro-batches are not looked at.
bool same_ranks(const Placement& a, const Placement& b);

/// The scope of the request's placement.
BoundScope scope_of(const SynthesisRequest& request);
/// The scope of all loops, V's and waves with at most this many stages a rank.
BoundScope any_scope(const SynthesisRequest& request, int most_chunks);

/// "one stage a rank, loop placement"; "all loops, V's and waves with up to 8 stages a rank".
std::string to_text(const BoundScope& scope);

}  // namespace pipewright::planner
