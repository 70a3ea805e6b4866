// ZB-V with a fixed rule: two stages a rank, down one leg of a V and up the other, so that rank 0
// has the loss, the first forward and the last gradient. The rule is PyTorch's
// ScheduleZBVZeroBubble, idle slots included. It needs 2p-1 micro-batches to fill the pipeline;
// where there are fewer, PyTorch lays out that many and leaves empty slots for those that do not
// exist.
#include <algorithm>
#include <array>

#include "planner/base/number_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

constexpr double kMostZbvSlots = 2e8;  // as many as the registry allows actions

std::int64_t counted(const ScheduleRequest& request) {
  return std::max<std::int64_t>(2 * std::int64_t{request.ranks} - 1, request.micro_batches);
}

std::optional<std::string> refuse_zbv(const ScheduleRequest& request) {
  if (auto refused = refuse_all_but_two_chunks("zbv", request)) return refused;
  const double slots = 6.0 * request.ranks * static_cast<double>(counted(request));
  if (slots <= kMostZbvSlots) return std::nullopt;
  return "zbv leaves slots for " + std::to_string(counted(request)) + " micro-batches on " +
         count_of(request.ranks, "rank") +
         ", more than 200 million of them; use at most 4000 ranks, or zb-h1";
}

/// Writes one rank: each call takes the next micro-batch of its kind and leg.
class ZbvRankWriter {
 public:
  enum Leg : std::size_t { Down, Up };

  ZbvRankWriter(int rank, const ScheduleRequest& request, std::vector<Cell>& cells)
      : stages_{rank, 2 * request.ranks - 1 - rank},
        micro_batches_(request.micro_batches),
        cells_(cells) {}

  void add(ActionKind kind, Leg leg) {
    const int k = done_[static_cast<std::size_t>(kind)][leg]++;
    if (k < micro_batches_) {
      append(cells_, kind, stages_[leg], k);
    } else {
      append_idle(cells_, 1);
    }
  }
  void add_i_and_w(Leg leg) {
    add(ActionKind::I, leg);
    add(ActionKind::W, leg);
  }
  int done(ActionKind kind, Leg leg) const { return done_[static_cast<std::size_t>(kind)][leg]; }

 private:
  std::array<int, 2> stages_;
  int micro_batches_;
  std::vector<Cell>& cells_;
  std::array<std::array<int, 2>, 3> done_ = {};  // of F, I, W, by leg
};

void write_zbv_rank(ZbvRankWriter& rank, int after, int before, int micro_batches) {
  using enum ActionKind;
  for (int k = 0; k < 2 * after + 1; ++k) rank.add(F, ZbvRankWriter::Down);
  for (int k = 0; k < before; ++k) {
    rank.add(F, ZbvRankWriter::Up);
    rank.add(F, ZbvRankWriter::Down);
  }
  for (int k = 0; k <= after; ++k) {
    rank.add(F, ZbvRankWriter::Up);
    rank.add_i_and_w(ZbvRankWriter::Up);
  }
  while (rank.done(F, ZbvRankWriter::Up) < micro_batches) {
    if (rank.done(F, ZbvRankWriter::Down) < micro_batches) rank.add(F, ZbvRankWriter::Down);
    rank.add_i_and_w(ZbvRankWriter::Down);
    rank.add(F, ZbvRankWriter::Up);
    rank.add_i_and_w(ZbvRankWriter::Up);
  }
  for (int k = 0; k < before; ++k) {
    rank.add(I, ZbvRankWriter::Down);
    rank.add(I, ZbvRankWriter::Up);
  }
  for (int k = 0; k <= after; ++k) rank.add_i_and_w(ZbvRankWriter::Down);
  while (rank.done(W, ZbvRankWriter::Up) < micro_batches) rank.add(W, ZbvRankWriter::Up);
  while (rank.done(W, ZbvRankWriter::Down) < micro_batches) rank.add(W, ZbvRankWriter::Down);
}

Order make_zbv(const ScheduleRequest& request) {
  const int p = request.ranks, n = static_cast<int>(counted(request));
  Order order = empty_order(request, 6 * static_cast<std::size_t>(n) + static_cast<std::size_t>(p));
  order.placement = Placement::v_shape(p);
  for (int r = 0; r < p; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    append_idle(cells, r);
    ZbvRankWriter writer(r, request, cells);
    write_zbv_rank(writer, p - 1 - r, r, n);
  }
  return order;
}

}  // namespace

Schedule zbv_schedule() {
  Schedule entry;
  entry.name = "zbv";
  entry.aliases = {"ZBVZeroBubble", "ZB-V"};
  entry.text.summary = "two stages a rank in a V, I and W apart: no bubble in a span at F = I = W";
  entry.text.constraint = "v = 2; any p, m; made for m >= 2p-1";
  entry.text.bubble = "(p-1)max(F, 2(I-W)) for F = I >= W and m >= 2p-1";
  entry.text.memory = "min(2m, m+1+r, 2p) chunks";
  entry.text.source =
      "Pipeline Parallelism with Controllable Memory (arXiv:2405.15362); PyTorch "
      "ScheduleZBVZeroBubble";
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.layout = Layout::V;
  entry.refusal = refuse_zbv;
  entry.make = make_zbv;
  return entry;
}

}  // namespace pipewright::planner
