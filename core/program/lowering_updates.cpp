// The update at the end of a step: REDUCE_GRAD of replicated stages, REDUCE_TIED, REDUCE_NORM, OPT,
// UNSHARD (docs/semantics.md §1.1).
#include <algorithm>
#include <numeric>
#include <utility>

#include "core/order/devices.hpp"
#include "core/program/lowering.hpp"

namespace pipewright::lowering {
namespace {

class Updating {
 public:
  Updating(const Order& order, const Updates& updates, Draft& draft)
      : updates_(updates),
        draft_(draft),
        placement_(order.placement),
        devices_(order.devices),
        stages_(static_cast<std::size_t>(order.stages())),
        micro_batches_(static_cast<std::size_t>(order.micro_batches)) {
    if (order.placement.looks_at_micro_batch()) find_replicated();
    divides_inside_ = updates.sharded && updates.sharding.divides_gradients() && replicas_alike();
  }

  void append() {
    for (std::size_t r = 0; r < draft_.ranks.size(); ++r) {
      const auto& row = draft_.ranks[r];
      const bool there = std::any_of(
          row.begin(), row.end(), [](const Instruction& in) { return in.kind == ActionKind::Opt; });
      const auto updates = [](const Instruction& in) {
        return in.kind == ActionKind::W || in.kind == ActionKind::B || in.has(Instruction::kPair);
      };
      if (there || std::none_of(row.begin(), row.end(), updates)) continue;
      if (divides_inside_) {
        divide_among_replicas(r, stages_to_divide(r), updates_, draft_);
      } else {
        add_reductions(r);
      }
      const bool whole_step = updates_.sharding.divides_weights() && !divides_inside_;
      if (whole_step) add_for_each(r, row.size(), ActionKind::Reshard);
      insert(r, row.size(), ActionKind::Opt, 0);
      if (whole_step) add_for_each(r, 0, ActionKind::Unshard);
      if (!updates_.sharding.divides_weights()) add_for_each(r, row.size(), ActionKind::Unshard);
    }
    if (!updates_.tied.empty()) add_before_opt(ActionKind::ReduceTied, tied_ranks());
    if (updates_.clips) add_before_opt(ActionKind::ReduceNorm, all_ranks());
  }

 private:
  std::vector<std::size_t> all_ranks() const {
    std::vector<std::size_t> ranks(draft_.ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  /// Those that compute a tied stage.
  std::vector<std::size_t> tied_ranks() const {
    std::vector<std::size_t> ranks;
    for (const std::size_t r : all_ranks()) {
      const auto own = placement_.stages_of(RankId(static_cast<std::int64_t>(r)));
      if (std::find_first_of(own.begin(), own.end(), updates_.tied.begin(), updates_.tied.end()) !=
          own.end())
        ranks.push_back(r);
    }
    return ranks;
  }

  /// Before every OPT of these ranks, unless the order has some of its own.
  void add_before_opt(ActionKind kind, const std::vector<std::size_t>& ranks) {
    for (const auto& row : draft_.ranks) {
      if (std::any_of(row.begin(), row.end(),
                      [kind](const Instruction& in) { return in.kind == kind; }))
        return;
    }
    for (const std::size_t r : ranks) {
      for (std::size_t i = draft_.ranks[r].size(); i-- > 0;) {
        if (draft_.ranks[r][i].kind == ActionKind::Opt) insert(r, i, kind, 0);
      }
    }
  }

  /// computes_: by stage and rank. replicated_: by stage, several ranks compute it. reduced_: some
  /// list has a REDUCE_GRAD of it, gathered_: an UNSHARD.
  void find_replicated() {
    const std::size_t ranks = draft_.ranks.size();
    computes_.assign(stages_ * ranks, 0);
    replicated_.assign(stages_, 0);
    reduced_ = gathered_ = replicated_;
    for (std::size_t r = 0; r < ranks; ++r) {
      for (const Instruction& in : draft_.ranks[r]) {
        if (in.kind == ActionKind::ReduceGrad) reduced_[in.stage] = 1;
        if (in.kind == ActionKind::Unshard ||
            (in.kind == ActionKind::Reshard && updates_.sharding.divides_weights()))
          gathered_[in.stage] = 1;
        if (!is_compute(in.kind)) continue;
        computes_[in.stage * ranks + r] = 1;
        if (!in.has(Instruction::kPair)) continue;
        const auto second = static_cast<std::size_t>(draft_.partners[in.link].stage.value);
        computes_[second * ranks + r] = 1;
      }
    }
    // Devices that divide a stage hold different parts of it: all of them have as many replicas.
    for (std::size_t s = 0; s < stages_; ++s) {
      for (std::size_t r = 0, replicas = 0; r < ranks; ++r) {
        const bool holds_first_part =
            coordinate_of(devices_, kTensorAxis, RankId(static_cast<std::int64_t>(r))) == 0;
        replicas += holds_first_part ? computes_[s * ranks + r] : 0;
        replicated_[s] = replicas > 1;
      }
    }
  }

  bool shares(std::size_t stage, std::size_t rank) const {
    return !replicated_.empty() && replicated_[stage] != 0 &&
           computes_[stage * draft_.ranks.size() + rank] != 0;
  }

  /// Highest stage first, on every rank: that is how backwards end, and two ranks that take their
  /// collectives in different orders would wait for each other for ever.
  void add_reductions(std::size_t rank) {
    std::size_t least = 0;
    for (std::size_t s = stages_; s-- > 0;) {
      if (!shares(s, rank) || reduced_[s] != 0) continue;
      const std::size_t after =
          updates_.early ? after_last_gradient(rank, s) : draft_.ranks[rank].size();
      const std::size_t at = std::max(least, after);
      insert(rank, at, ActionKind::ReduceGrad, s);
      least = at + 1;
    }
  }

  /// An UNSHARD, or RESHARD, of each sharded stage.
  void add_for_each(std::size_t rank, std::size_t at, ActionKind kind) {
    if (!updates_.sharded) return;
    for (std::size_t s = 0; s < stages_; ++s) {
      if (shares(s, rank) && gathered_[s] == 0) insert(rank, at++, kind, s);
    }
  }

  /// Each list then has the same collectives at the same places, wherever these stand in it, and no
  /// rank waits for another one that waits for it there.
  bool replicas_alike() const {
    const std::size_t ranks = draft_.ranks.size();
    if (replicated_.empty()) return false;
    const std::vector<std::size_t> pipelines = pipelines_of(draft_, micro_batches_);
    for (std::size_t s = 0; s < stages_; ++s) {
      std::size_t first = ranks;
      std::vector<std::uint8_t> seen(ranks, 0);  // of the pipelines
      for (std::size_t r = 0; r < ranks; ++r) {
        if (!shares(s, r)) continue;
        if (first == ranks) first = r;
        if (std::exchange(seen[pipelines[r]], 1) != 0 || !compute_alike(draft_, first, r))
          return false;
      }
    }
    return true;
  }

  StagesOfRank stages_to_divide(std::size_t rank) const {
    StagesOfRank stages{std::vector<std::uint8_t>(stages_, 0),
                        std::vector<std::uint8_t>(stages_, 0)};
    for (std::size_t s = 0; s < stages_; ++s) {
      stages.reduce[s] = shares(s, rank) && reduced_[s] == 0;
      stages.gather[s] = shares(s, rank) && gathered_[s] == 0;
    }
    return stages;
  }

  /// The place after the last W or B of the stage; the end where there is none.
  std::size_t after_last_gradient(std::size_t rank, std::size_t stage) const {
    const auto& row = draft_.ranks[rank];
    const auto weighs = [stage](ActionKind kind, std::size_t of) {
      return of == stage && (kind == ActionKind::W || kind == ActionKind::B);
    };
    for (std::size_t i = row.size(); i-- > 0;) {
      if (weighs(row[i].kind, row[i].stage)) return i + 1;
      if (!row[i].has(Instruction::kPair)) continue;
      const Action& second = draft_.partners[row[i].link];
      if (weighs(second.kind, static_cast<std::size_t>(second.stage.value))) return i + 1;
    }
    return row.size();
  }

  void insert(std::size_t rank, std::size_t at, ActionKind kind, std::size_t stage) {
    Instruction in;
    in.kind = kind;
    in.stage = static_cast<std::uint16_t>(stage);
    auto& row = draft_.ranks[rank];
    row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), in);
    if (draft_.versions.empty()) return;
    auto& versions = draft_.versions[rank];
    versions.insert(versions.begin() + static_cast<std::ptrdiff_t>(at), -1);
  }

  const Updates& updates_;
  Draft& draft_;
  const Placement& placement_;
  const std::vector<MeshAxis>& devices_;
  const std::size_t stages_, micro_batches_;
  std::vector<std::uint8_t> computes_, replicated_, reduced_, gathered_;
  bool divides_inside_ = false;  // collectives of gradients and weights stand where they are needed
};

}  // namespace

void append_updates(const Order& order, const Updates& updates, Draft& draft) {
  Updating(order, updates, draft).append();
}

}  // namespace pipewright::lowering
