#include "core/order/sharding_faults.hpp"

#include "core/order/devices.hpp"
#include "core/order/problems.hpp"

namespace pipewright {
namespace {

class ShardingCheck {
 public:
  explicit ShardingCheck(const Order& order)
      : order_(order),
        ranks_(order.ranks.size()),
        stages_(static_cast<std::size_t>(order.stages())),
        of_rank_(ranks_ * stages_),
        of_stage_(stages_) {}

  std::vector<std::string> find() {
    visit([this](std::size_t rank, std::size_t, const Action& a) { note(rank, a); });
    for (std::size_t s = 0; s < stages_; ++s) {
      for (std::size_t r = 0; r < ranks_; ++r) {
        const bool is_first_part =
            coordinate_of(order_.devices, kTensorAxis, RankId(static_cast<std::int64_t>(r))) == 0;
        of_stage_[s].replicas += is_first_part && of_rank_[s * ranks_ + r].computes ? 1 : 0;
      }
    }
    visit([this](std::size_t rank, std::size_t cell, const Action& a) { judge(rank, cell, a); });
    judge_ends();
    return std::move(problems_);
  }

 private:
  struct Stage {
    bool gathers = false, reduces = false;
    int replicas = 0;
    bool is_sharded() const { return gathers && replicas > 1; }
  };
  struct OfRank {
    bool computes = false, has_weights = false, told = false;
    const Action* left_over = nullptr;  // the last W or B, if no REDUCE_GRAD stands behind it
    std::size_t left_over_at = 0;
  };

  template <class Visit>
  void visit(Visit one) const {
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t k = 0; k < order_.ranks[r].size(); ++k) {
        const Cell& cell = order_.ranks[r][k];
        for (const Action* a : {&cell.action, cell.partner ? &*cell.partner : nullptr}) {
          if (a == nullptr) continue;
          if (a->kind == ActionKind::Opt ||
              (has_stage(a->kind) && static_cast<std::size_t>(a->stage.value) < stages_))
            one(r, k, *a);
        }
      }
    }
  }

  void note(std::size_t rank, const Action& a) {
    if (a.kind == ActionKind::Opt) return;
    const auto stage = static_cast<std::size_t>(a.stage.value);
    of_stage_[stage].gathers |= a.kind == ActionKind::Unshard;
    of_stage_[stage].reduces |= a.kind == ActionKind::ReduceGrad;
    of_rank_[stage * ranks_ + rank].computes |= is_compute(a.kind);
  }

  void judge(std::size_t rank, std::size_t cell, const Action& a) {
    if (a.kind == ActionKind::Opt) {
      for (std::size_t s = 0; s < stages_; ++s) of_rank_[s * ranks_ + rank].has_weights = false;
      return;
    }
    OfRank& own = of_rank_[static_cast<std::size_t>(a.stage.value) * ranks_ + rank];
    if (a.kind == ActionKind::Unshard) own.has_weights = true;
    if (a.kind == ActionKind::Reshard) own.has_weights = false;
    if (a.kind == ActionKind::ReduceGrad) own.left_over = nullptr;
    if (a.kind == ActionKind::W || a.kind == ActionKind::B) {
      own.left_over = &a;
      own.left_over_at = cell;
    }
    if (!is_compute(a.kind) || own.has_weights || own.told || !order_.sharding.divides_weights() ||
        !of_stage_[static_cast<std::size_t>(a.stage.value)].is_sharded())
      return;
    own.told = true;
    problems_.push_back(
        place_of(rank, cell) + to_string(a) +
        " has no weights: no UNSHARD of its stage stands before it, or a RESHARD or "
        "OPT since");
  }

  static std::string place_of(std::size_t rank, std::size_t cell) {
    return place_text(RankId(static_cast<std::int64_t>(rank)), cell) + ": ";
  }

  void judge_groups(std::size_t stage) {
    const int replicas = of_stage_[stage].replicas;
    if (replicas % order_.sharding.groups == 0) return;
    problems_.push_back("stage " + std::to_string(stage) + " has " + std::to_string(replicas) +
                        " replicas, which do not form " + std::to_string(order_.sharding.groups) +
                        " groups of equally many");
  }

  void judge_ends() {
    for (std::size_t s = 0; s < stages_; ++s) {
      if (!of_stage_[s].is_sharded()) continue;
      judge_groups(s);
      if (!of_stage_[s].reduces || !order_.sharding.divides_gradients()) continue;
      for (std::size_t r = 0; r < ranks_; ++r) {
        const OfRank& own = of_rank_[s * ranks_ + r];
        if (own.left_over == nullptr) continue;
        problems_.push_back(place_of(r, own.left_over_at) + to_string(*own.left_over) +
                            " has no REDUCE_GRAD of its stage after it, so its gradients are in no "
                            "replica's part of the sum");
      }
    }
  }

  const Order& order_;
  const std::size_t ranks_, stages_;
  std::vector<OfRank> of_rank_;  // by stage, then rank
  std::vector<Stage> of_stage_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> sharding_problems(const Order& order) {
  const bool names_more = order.sharding.divides_gradients() || order.sharding.groups > 1;
  if (!names_more || !order.placement.looks_at_micro_batch()) return {};
  return ShardingCheck(order).find();
}

}  // namespace pipewright
