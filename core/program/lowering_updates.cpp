// The update at the end of a step: REDUCE_GRAD of replicated stages, REDUCE_TIED, REDUCE_NORM, OPT,
// UNSHARD (docs/semantics.md §1.1).
#include <algorithm>
#include <numeric>

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
        stages_(static_cast<std::size_t>(order.stages())) {
    if (order.placement.looks_at_micro_batch()) find_replicated();
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
      add_reductions(r);
      insert(r, row.size(), ActionKind::Opt, 0);
      add_gathering(r);
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
        if (in.kind == ActionKind::Unshard) gathered_[in.stage] = 1;
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
      const std::size_t behind =
          updates_.early ? behind_last_gradient(rank, s) : draft_.ranks[rank].size();
      const std::size_t at = std::max(least, behind);
      insert(rank, at, ActionKind::ReduceGrad, s);
      least = at + 1;
    }
  }

  void add_gathering(std::size_t rank) {
    if (!updates_.sharded) return;
    for (std::size_t s = 0; s < stages_; ++s) {
      if (shares(s, rank) && gathered_[s] == 0)
        insert(rank, draft_.ranks[rank].size(), ActionKind::Unshard, s);
    }
  }

  /// The place behind the last W or B of the stage; the end where there is none.
  std::size_t behind_last_gradient(std::size_t rank, std::size_t stage) const {
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
  const std::size_t stages_;
  std::vector<std::uint8_t> computes_, replicated_, reduced_, gathered_;
};

}  // namespace

void append_updates(const Order& order, const Updates& updates, Draft& draft) {
  Updating(order, updates, draft).append();
}

}  // namespace pipewright::lowering
