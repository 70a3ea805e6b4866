// Hanayo: a wave pipeline. The model goes down and up the ranks w times, so a rank holds v = 2w
// stages, and turning round at the ends costs no transfer. The paper's runtime is not public; the
// rule is that of topal-team/elf (generate_hanayo_schedule), which runs all forwards before the
// last backwards, with ELF's backwards in two parts that follow each other (parameter
// backward=fused: in one).
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

bool fused(const ScheduleRequest& request) {
  const auto found = request.parameters.find("backward");
  return found != request.parameters.end() && found->second == "fused";
}

std::optional<std::string> refuse_hanayo(const ScheduleRequest& request) {
  const auto found = request.parameters.find("backward");
  if (found != request.parameters.end() && found->second != "fused" && found->second != "split") {
    return "the parameter backward is \"fused\" or \"split\", not \"" + found->second + "\"";
  }
  if (request.chunks % 2 == 0) return std::nullopt;
  const std::string less = request.chunks == 1 ? "" : std::to_string(request.chunks - 1) + " or ";
  return "hanayo's waves go down and up the ranks, so a rank holds 2 stages for each of them, "
         "not " +
         std::to_string(request.chunks) + "; use vpp " + less + std::to_string(request.chunks + 1);
}

/// Chunk c of a rank: the waves go down on even chunks and up on odd ones.
int stage_at(int chunk, int rank, int ranks) {
  return chunk * ranks + (chunk % 2 == 0 ? rank : ranks - 1 - rank);
}

/// Writes one rank. Its even chunks are its places on the way down, its odd ones on the way up;
/// both have as many turns, a turn being a micro-batch of a wave.
class HanayoRankWriter {
 public:
  HanayoRankWriter(const ScheduleRequest& request, int rank, std::vector<Cell>& cells)
      : request_(request), rank_(rank), fused_(fused(request)), cells_(cells) {}

  void write() {
    const int m = request_.micro_batches, turns = request_.chunks / 2 * m;
    const int ahead = std::min(request_.ranks - rank_, m);
    for (int k = 0; k < ahead; ++k) forward(down(k), k % m);
    int back = 0;  // backwards on the way up that have been taken
    for (int k = 0; k < turns; ++k) {
      forward(up(k), k % m);
      if (ahead + k < turns) {
        forward(down(ahead + k), (ahead + k) % m);
      } else {
        backward(last() - down(back), back % m);
        ++back;
      }
    }
    for (int k = 0; k < turns; ++k) {
      backward(last() - up(k), k % m);
      if (back == turns) continue;
      backward(last() - down(back), back % m);
      ++back;
    }
  }

 private:
  int last() const { return request_.chunks - 1; }
  int down(int turn) const { return 2 * (turn / request_.micro_batches); }
  int up(int turn) const { return down(turn) + 1; }
  void forward(int chunk, int micro_batch) { add(ActionKind::F, chunk, micro_batch); }
  void backward(int chunk, int micro_batch) {
    if (fused_) {
      add(ActionKind::B, chunk, micro_batch);
    } else {
      add(ActionKind::I, chunk, micro_batch);
      add(ActionKind::W, chunk, micro_batch);
    }
  }
  void add(ActionKind kind, int chunk, int micro_batch) {
    append(cells_, kind, stage_at(chunk, rank_, request_.ranks), micro_batch);
  }

  const ScheduleRequest& request_;
  int rank_;
  bool fused_;
  std::vector<Cell>& cells_;
};

Order make_hanayo(const ScheduleRequest& request) {
  Order order = empty_order(request, 3 * static_cast<std::size_t>(request.micro_batches) *
                                         static_cast<std::size_t>(request.chunks));
  order.placement = waves(request.ranks, request.chunks);
  for (int r = 0; r < request.ranks; ++r) {
    HanayoRankWriter(request, r, order.ranks[static_cast<std::size_t>(r)]).write();
  }
  return order;
}

}  // namespace

Schedule hanayo_schedule() {
  Schedule entry;
  entry.name = "hanayo";
  entry.aliases = {"waves"};
  entry.text.summary =
      "waves down and up the ranks: a bubble of one wave, nearly all activations live";
  entry.text.constraint =
      "v = 2w for w waves; any p, m; backward=split (the default) or backward=fused";
  entry.text.bubble =
      "(p-1)(I+max(F,I)) of one chunk for m >= p and F <= I+W; fused: (p-1)2B for F <= B";
  entry.text.memory = "vm - min(p-1-r, m-1) chunks";
  entry.text.source = "Hanayo (SC 2023, doi:10.1145/3581784.3607073); topal-team/elf";
  entry.parameters = {"backward"};
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.layout = Layout::Waves;
  entry.refusal = refuse_hanayo;
  entry.make = make_hanayo;
  return entry;
}

}  // namespace pipewright::planner
