#include "planner/synthesis/scope.hpp"

#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/synthesis/as_it_is.hpp"
#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner {
namespace {

/// What the search's sequences leave out, and the proof's numbering of micro-batches.
std::string orders_of(const SynthesisRequest& request) {
  if (!request.split_backward) return "orders of F and B";
  const auto& stages = request.costs.stages;
  const std::int64_t pair = request.costs.overlapped_pair.value;
  std::vector<std::string> only;
  if (synthesis::fusing_helps(request)) only.emplace_back("with all backwards fused or all split");
  if (pair > 0 && std::any_of(stages.begin(), stages.end(),
                              [&](const StageCosts& s) { return pair < s.f.value + s.b.value; }))
    only.emplace_back("without overlapped pairs");
  if (request.prove && request.objective == Objective::Span)
    only.emplace_back("with each stage's micro-batches in order");
  std::string text;
  for (const std::string& each : only) text += (text.empty() ? "orders " : ", ") + each;
  return text;
}

}  // namespace

bool same_ranks(const Placement& a, const Placement& b) {
  if (a.stages() != b.stages()) return false;
  for (int s = 0; s < a.stages(); ++s) {
    if (a.rank_of(StageId(s), MicroBatchId(0)) != b.rank_of(StageId(s), MicroBatchId(0)))
      return false;
  }
  return true;
}

BoundScope scope_of(const SynthesisRequest& request) {
  const Placement& placement = request.placement;
  BoundScope scope;
  scope.orders = orders_of(request);
  const int chunks = placement.stages() / placement.ranks();
  const bool even = chunks > 0 && chunks * placement.ranks() == placement.stages();
  std::string shape = "explicit";
  if (even && chunks > 1 && same_ranks(placement, waves(placement.ranks(), chunks)))
    shape = chunks == 2 ? "v" : "waves";
  if (even && same_ranks(placement, Placement::loop(placement.ranks(), chunks))) shape = "loop";
  scope.least_chunks = scope.most_chunks = shape == "explicit" ? placement.stages() : chunks;
  scope.placements = {shape};
  return scope;
}

BoundScope any_scope(const SynthesisRequest& request, int most_chunks) {
  BoundScope scope{{"loop"}, 1, most_chunks, orders_of(request)};
  if (most_chunks >= 2) scope.placements.emplace_back("v");
  if (most_chunks >= 3) scope.placements.emplace_back("waves");
  return scope;
}

std::string to_text(const BoundScope& scope) {
  const auto& shapes = scope.placements;
  std::string text;
  if (shapes.size() > 1) {
    text = shapes.size() == 2 ? "all loops and V's" : "all loops, V's and waves";
    text += " with up to " + std::to_string(scope.most_chunks) + " stages a rank";
  } else if (!shapes.empty() && shapes.front() == "explicit") {
    text = "these places of " + std::to_string(scope.most_chunks) + " stages";
  } else if (!shapes.empty()) {
    const int chunks = scope.most_chunks;
    text = (chunks == 1 ? "one stage" : std::to_string(chunks) + " stages") + " a rank, " +
           (shapes.front() == "v" ? "V" : shapes.front()) + " placement";
  }
  return scope.orders.empty() ? text : text + ", " + scope.orders;
}

}  // namespace pipewright::planner
