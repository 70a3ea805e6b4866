// Paddle's VPP pass, before and after the fix of its hang (PaddlePaddle/Paddle pull 71104): the
// same computations as interleaved 1F1B with groups of p, and each transfer end where Paddle's job
// lists put it.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/chunk_turns.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/paddle_jobs.hpp"

namespace pipewright::planner {
namespace {

/// m = p runs all forwards first; Paddle chose that rule, interleaved 1F1B would not.
std::int64_t vpp_warm_up(const ScheduleRequest& request, int rank) {
  const std::int64_t total = std::int64_t{request.micro_batches} * request.chunks;
  if (request.micro_batches == request.ranks) return total;
  const std::int64_t ahead =
      2 * (request.ranks - 1 - rank) + std::int64_t{request.chunks - 1} * request.ranks;
  return std::min(ahead, total);
}

std::optional<std::string> refuse_paddle_vpp(const ScheduleRequest& request) {
  if (auto refused = refuse_jobs(request)) return refused;
  if (request.micro_batches >= request.ranks) return std::nullopt;
  return "paddle-vpp needs at least as many micro-batches as ranks: " +
         std::to_string(request.micro_batches) + " < " + std::to_string(request.ranks) + "; use " +
         std::to_string(request.ranks) + " micro-batches, or interleaved";
}

Order make_paddle_vpp(const ScheduleRequest& request) {
  const ChunkTurns turns(request.micro_batches, request.chunks, request.ranks);
  return make_paddle_order(request, jobs_of(request).value_or(PaddleJobs::Split), turns,
                           vpp_warm_up);
}

}  // namespace

Schedule paddle_vpp_schedule() {
  Schedule entry;
  entry.name = "paddle-vpp";
  entry.aliases = {"PaddleVPP"};
  entry.text.summary =
      "Paddle's VPP job lists with their transfer ends: jobs=fused hangs, jobs=split passes";
  entry.text.constraint =
      "m >= p; jobs=fused or jobs=split (the default); where p does not divide m, Paddle's rule "
      "has "
      "sizes that cannot end under any policy, such as p 5, m 7, v 2: check them";
  entry.text.bubble = "none known";
  entry.text.memory = "min(mv, (v-1)p + 2(p-1-r) + 1) chunks; mv where m = p";
  entry.text.source = "PaddlePaddle pipeline_vpp.py, before and after pull 71104";
  entry.parameters = {"jobs"};
  entry.default_chunks = 2;
  entry.policy = "paddle-vpp";
  entry.refusal = refuse_paddle_vpp;
  entry.make = make_paddle_vpp;
  return entry;
}

}  // namespace pipewright::planner
