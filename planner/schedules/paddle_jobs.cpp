#include "planner/schedules/paddle_jobs.hpp"

#include <algorithm>

#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

/// Appends the jobs of one rank, with the transfer ends that each job brings along.
class JobWriter {
 public:
  JobWriter(const ScheduleRequest& request, const ChunkTurns& turns, int rank,
            std::vector<Cell>& cells)
      : ranks_(request.ranks),
        last_stage_(request.ranks * request.chunks - 1),
        rank_(rank),
        turns_(turns),
        cells_(cells) {}

  void recv_forward(std::int64_t k) {
    const auto [stage, m] = at(turns_.forward(k));
    if (ranks_ > 1 && stage > 0) append(cells_, ActionKind::RecvF, stage, m);
  }
  /// Computes and sends on.
  void forward(std::int64_t k) {
    const auto [stage, m] = at(turns_.forward(k));
    append(cells_, ActionKind::F, stage, m);
    if (ranks_ > 1 && stage < last_stage_) append(cells_, ActionKind::SendF, stage, m);
  }
  /// Receives and computes.
  void backward(std::int64_t k) {
    const auto [stage, m] = at(turns_.backward(k));
    if (ranks_ > 1 && stage < last_stage_) append(cells_, ActionKind::RecvB, stage, m);
    append(cells_, ActionKind::B, stage, m);
  }
  void send_backward(std::int64_t k) {
    const auto [stage, m] = at(turns_.backward(k));
    if (ranks_ > 1 && stage > 0) append(cells_, ActionKind::SendB, stage, m);
  }

 private:
  struct Place {
    int stage, micro_batch;
  };
  Place at(ChunkTurn turn) const { return {turn.chunk * ranks_ + rank_, turn.micro_batch}; }

  int ranks_, last_stage_, rank_;
  const ChunkTurns& turns_;
  std::vector<Cell>& cells_;
};

void write_fused(JobWriter& jobs, std::int64_t warm_up, std::int64_t total) {
  for (std::int64_t k = 0; k < warm_up; ++k) {
    jobs.recv_forward(k);
    jobs.forward(k);
  }
  for (std::int64_t k = 0; k < total; ++k) {
    if (warm_up + k < total) {
      jobs.recv_forward(warm_up + k);
      jobs.forward(warm_up + k);
    }
    jobs.backward(k);
    jobs.send_backward(k);
  }
}

void write_split(JobWriter& jobs, std::int64_t warm_up, std::int64_t total) {
  for (std::int64_t k = 0; k < warm_up; ++k) {
    jobs.recv_forward(k);
    jobs.forward(k);
  }
  for (std::int64_t k = 0; k < total; ++k) {
    // The receive of the next forward comes before the gradient is sent: that order is the fix.
    const bool more = warm_up + k < total;
    jobs.backward(k);
    if (more) jobs.recv_forward(warm_up + k);
    jobs.send_backward(k);
    if (more) jobs.forward(warm_up + k);
  }
}

}  // namespace

std::optional<PaddleJobs> jobs_of(const ScheduleRequest& request) {
  const auto found = request.parameters.find("jobs");
  if (found == request.parameters.end()) return std::nullopt;
  if (found->second == "fused") return PaddleJobs::Fused;
  if (found->second == "split") return PaddleJobs::Split;
  return std::nullopt;
}

std::optional<std::string> refuse_jobs(const ScheduleRequest& request) {
  const auto found = request.parameters.find("jobs");
  if (found == request.parameters.end() || jobs_of(request)) return std::nullopt;
  return "the parameter jobs is \"fused\" or \"split\", not \"" + found->second + "\"";
}

Order make_paddle_order(const ScheduleRequest& request, PaddleJobs jobs, const ChunkTurns& turns,
                        std::int64_t (*warm_up)(const ScheduleRequest&, int rank)) {
  const std::int64_t total = std::int64_t{request.micro_batches} * request.chunks;
  Order order = empty_order(request, static_cast<std::size_t>(6 * total));
  for (int r = 0; r < request.ranks; ++r) {
    JobWriter writer(request, turns, r, order.ranks[static_cast<std::size_t>(r)]);
    const std::int64_t first = warm_up(request, r);
    if (jobs == PaddleJobs::Fused) {
      write_fused(writer, std::min(first, total), total);
    } else {
      write_split(writer, std::min(first + 1, total), total);
    }
  }
  return order;
}

}  // namespace pipewright::planner
