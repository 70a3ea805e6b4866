#include "planner/branches/flow_bound.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "planner/bounds/closed_form.hpp"
#include "planner/branches/branch.hpp"

namespace pipewright::planner {
namespace {

/// A computation or a message on the way of a micro-batch.
struct Leg {
  std::tuple<int, int> place;  // {rank, rank} computes, {rank, other} sends
  int stage = 0;
  bool is_backward = false;
  std::int64_t time = 0;   // on the way
  std::int64_t alone = 0;  // of it, what nothing else at this place overlaps
  std::int64_t later = 0;  // the W after it, at the same place
  std::int64_t head = 0;   // before it, of the first micro-batch
  std::int64_t tail = 0;   // after it, of the last
  std::int64_t done = 0;   // until then it has not ended for all micro-batches

  int rank() const { return std::get<0>(place); }
  bool computes() const { return rank() == std::get<1>(place); }
};

/// The way of any micro-batch of one replica.
class Way {
 public:
  Way(const Configuration& configuration, const std::vector<StagePlan>& stages,
      const std::vector<StageCosts>& costs, std::span<const StageCosts> on_way)
      : configuration_(configuration),
        stages_(stages),
        costs_(costs),
        on_way_(on_way.empty() ? std::span<const StageCosts>(costs) : on_way) {
    find_after();
  }

  /// `held`: activations at most, by rank; empty: not known.
  std::int64_t bound(const Wires& wires, Sending sending, std::span<const int> held,
                     const Room& room) {
    lay(wires, sending);
    std::int64_t bound = std::max(bound_by_stays(held, room), bound_by_places());
    if (hold_back(held)) bound = std::max(bound, bound_by_places());
    return bound;
  }

 private:
  int rank_of(int stage) const {
    return static_cast<int>(stages_[static_cast<std::size_t>(stage)].rank.value);
  }

  /// By stage, what is to come after its last gradient on its rank: a rank reduces its highest
  /// stage first, updates all, and gathers all.
  void find_after() {
    const auto ranks = static_cast<std::size_t>(configuration_.parallel.pipeline);
    after_.assign(stages_.size(), 0);
    if (configuration_.schedule->traits.asynchronous) return;
    std::vector<std::int64_t> reduced(ranks, 0), end(ranks, 0);
    for (std::size_t s = 0; s < stages_.size(); ++s)
      end[static_cast<std::size_t>(stages_[s].rank.value)] +=
          (costs_[s].opt + costs_[s].unshard).value;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const auto rank = static_cast<std::size_t>(stages_[s].rank.value);
      reduced[rank] += costs_[s].reduce.value;
      after_[s] = reduced[rank] + end[rank];
    }
  }

  Leg forward(int stage) const {
    const int rank = rank_of(stage);
    const auto s = static_cast<std::size_t>(stage);
    return {{rank, rank}, stage, false, on_way_[s].f.value, costs_[s].f.value, 0, 0, 0, 0};
  }

  /// As I and W apart where the schedule may have it so: a B is no shorter.
  Leg backward(int stage) const {
    const StageCosts &cost = costs_[static_cast<std::size_t>(stage)],
                     &way = on_way_[static_cast<std::size_t>(stage)];
    const int rank = rank_of(stage);
    std::int64_t time = way.b.value, alone = cost.b.value, later = 0;
    if (configuration_.schedule->traits.splits_backward) {
      const std::int64_t both = std::min(cost.b, cost.i + cost.w).value;
      time = std::min(way.i, way.b).value;
      alone = std::min(cost.i, cost.b).value;
      later = std::max<std::int64_t>(0, both - alone);
    }
    return {{rank, rank}, stage, true, time, alone, later, 0, 0, 0};
  }

  void lay_message(int from, int to, const Wire& wire, Sending sending) {
    if (rank_of(from) == rank_of(to)) return;
    const std::int64_t alone = sending == Sending::InTurn ? wire.time : wire.moving;
    legs_.push_back({{rank_of(from), rank_of(to)}, from, to < from, wire.time, alone, 0, 0, 0, 0});
  }

  void lay(const Wires& wires, Sending sending) {
    const auto count = static_cast<int>(stages_.size());
    legs_.clear();
    for (int s = 0; s < count; ++s) {
      if (s > 0) lay_message(s - 1, s, wires.up[static_cast<std::size_t>(s) - 1], sending);
      legs_.push_back(forward(s));
    }
    for (int s = count - 1; s >= 0; --s) {
      if (s + 1 < count) lay_message(s + 1, s, wires.down[static_cast<std::size_t>(s)], sending);
      legs_.push_back(backward(s));
    }
    set_heads({});
    set_tails();
    by_place_.resize(legs_.size());
    std::iota(by_place_.begin(), by_place_.end(), 0);
    std::stable_sort(by_place_.begin(), by_place_.end(),
                     [&](std::size_t a, std::size_t b) { return legs_[a].place < legs_[b].place; });
  }

  /// `ready`: by rank, until when it begins no backward; empty: nothing is known.
  void set_heads(std::span<const std::int64_t> ready) {
    std::int64_t head = 0;
    for (Leg& leg : legs_) {
      if (leg.is_backward && leg.computes() && !ready.empty())
        head = std::max(head, ready[static_cast<std::size_t>(leg.rank())]);
      leg.head = head;
      head += leg.time;
    }
  }

  void set_tails() {
    std::int64_t tail = 0;
    for (auto leg = legs_.rbegin(); leg != legs_.rend(); ++leg) {
      if (leg->is_backward && leg->computes())
        tail = std::max(tail, leg->later + after_[static_cast<std::size_t>(leg->stage)]);
      leg->tail = tail;
      tail += leg->time;
    }
  }

  /// Sets the legs' `done`.
  std::int64_t bound_by_places() {
    std::int64_t bound = 0;
    for (Leg& leg : legs_) leg.done = leg.head + leg.time;
    for (auto first = by_place_.begin(); first != by_place_.end(); ++first) {
      const Leg& from = legs_[*first];
      std::int64_t work = 0, later = 0;
      for (auto last = first; last != by_place_.end() && legs_[*last].place == from.place; ++last) {
        Leg& to = legs_[*last];
        work += to.alone;
        later += to.later;
        to.done = std::max(to.done, from.head + micro_batches() * work);
        bound = std::max(bound, to.done + to.tail);
        if (later > 0)
          bound = std::max(bound, from.head + micro_batches() * (work + later) +
                                      after_[static_cast<std::size_t>(to.stage)]);
      }
    }
    return bound;
  }

  /// A rank that holds all micro-batches of all its stages begins its backwards after its forwards.
  /// False where no rank does. Needs `done`.
  bool hold_back(std::span<const int> held) {
    if (held.empty() || configuration_.schedule->traits.splits_backward) return false;
    const std::int64_t all = micro_batches() * configuration_.parallel.chunks;
    std::vector<std::int64_t> ready(held.size(), 0);
    std::int64_t late = 0;  // against the way of one micro-batch
    bool any = false;
    for (const Leg& leg : legs_) {
      if (leg.is_backward) break;
      const std::int64_t end = leg.head + leg.time;
      late = std::max(late, leg.done - end);
      if (!leg.computes() || held[static_cast<std::size_t>(leg.rank())] != all) continue;
      ready[static_cast<std::size_t>(leg.rank())] = end + late;
      any = true;
    }
    if (any) set_heads(ready);
    return any;
  }

  /// What a rank holds of a micro-batch, and for how long in all.
  struct Stay {
    const Leg *first = nullptr, *last = nullptr;
    std::int64_t time = 0;
    double byte_ns = 0;  // bytes times that time, where they are known
    int stages = 0;
  };

  std::vector<Stay> stays(const Room& room) const {
    std::vector<Stay> stays(static_cast<std::size_t>(configuration_.parallel.pipeline));
    for (const Leg& leg : legs_) {
      if (!leg.computes()) continue;
      Stay& stay = stays[static_cast<std::size_t>(leg.rank())];
      const StageMemory memory =
          room.left.empty() ? StageMemory{} : room.memory[static_cast<std::size_t>(leg.stage)];
      const auto held = static_cast<double>(memory.f.value);
      if (leg.is_backward) {
        stay.last = &leg;
        stay.time += leg.head + leg.time + leg.later;
        stay.byte_ns += held * static_cast<double>(leg.head + leg.time) -
                        static_cast<double>(memory.w.value) * static_cast<double>(leg.later);
      } else {
        if (stay.first == nullptr) stay.first = &leg;
        stay.time -= leg.head;
        stay.byte_ns -= held * static_cast<double>(leg.head);
        ++stay.stages;
      }
    }
    return stays;
  }

  std::int64_t bound_by_stays(std::span<const int> held, const Room& room) const {
    if (held.empty() && room.left.empty()) return 0;
    const std::vector<Stay> of_rank = stays(room);
    std::int64_t bound = 0;
    for (std::size_t r = 0; r < of_rank.size(); ++r) {
      if (of_rank[r].stages == 0) continue;
      if (!held.empty()) bound = std::max(bound, bound_by_number(of_rank[r], held[r]));
      if (!room.left.empty()) bound = std::max(bound, bound_by_room(of_rank[r], room.left[r]));
    }
    return bound;
  }

  std::int64_t bound_by_number(const Stay& stay, std::int64_t held) const {
    const std::int64_t m = micro_batches();
    const Leg &first = *stay.first, &last = *stay.last;
    // The last one begins when all have ended but those that are held with it.
    if (stay.stages == 1) return first.head + (m - 1) / held * stay.time + first.time + first.tail;
    return first.head + (m * stay.time + held - 1) / held + after_all(last);
  }

  std::int64_t bound_by_room(const Stay& stay, Bytes room) const {
    if (room.value <= 0) return 0;
    const double time =
        static_cast<double>(micro_batches()) * stay.byte_ns / static_cast<double>(room.value);
    // What rounding may have added is taken off.
    return stay.first->head + after_all(*stay.last) + static_cast<std::int64_t>(time * (1 - 1e-9));
  }

  /// After a rank has let go of all micro-batches of all its stages, the last of which ends with
  /// this leg.
  std::int64_t after_all(const Leg& last) const {
    return last.later > 0 ? after_[static_cast<std::size_t>(last.stage)] : last.tail;
  }

  std::int64_t micro_batches() const { return configuration_.parallel.micro_batches; }

  const Configuration& configuration_;
  const std::vector<StagePlan>& stages_;
  const std::vector<StageCosts>& costs_;
  const std::span<const StageCosts> on_way_;
  std::vector<std::int64_t> after_;    // by stage
  std::vector<Leg> legs_;              // in the order of the way
  std::vector<std::size_t> by_place_;  // legs of one place next to each other, in their order
};

}  // namespace

std::int64_t flow_bound(const Configuration& configuration, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs, const std::vector<Wires>& wires,
                        Sending sending, const Room& room, std::span<const StageCosts> on_way) {
  std::int64_t bound = step_bound(configuration, stages, costs);
  const Layout layout = configuration.schedule->layout;
  if (layout == Layout::Bidirectional || layout == Layout::Replicas) return bound;
  const ParallelSetup& parallel = configuration.parallel;
  const auto held =
      closed_form_peaks(configuration.schedule->name,
                        {parallel.pipeline, parallel.micro_batches, parallel.chunks, {}});
  Way way(configuration, stages, costs, on_way);
  for (const Wires& replica : wires)
    bound = std::max(bound, way.bound(replica, sending, held ? *held : std::vector<int>{}, room));
  return bound;
}

}  // namespace pipewright::planner
