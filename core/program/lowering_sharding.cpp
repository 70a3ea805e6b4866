// Where replicas divide gradients and weights among them: a REDUCE_GRAD after each run of a stage's
// W and B, an UNSHARD before its computations, by a look-ahead as PyTorch has it, and a RESHARD
// after them (docs/semantics.md §1.1).
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "core/program/lowering.hpp"

namespace pipewright::lowering {
namespace {

/// The one or two actions of a computation.
struct Actions {
  std::pair<ActionKind, std::size_t> all[2];
  std::size_t count = 0;

  const auto* begin() const { return all; }
  const auto* end() const { return all + count; }
  bool has(std::size_t stage) const {
    return std::any_of(begin(), end(), [&](const auto& a) { return a.second == stage; });
  }
};

Actions actions_of(const Instruction& in, const std::vector<Action>& partners) {
  Actions actions;
  if (!is_compute(in.kind)) return actions;
  actions.all[actions.count++] = {in.kind, in.stage};
  if (in.has(Instruction::kPair)) {
    const Action& second = partners[in.link];
    actions.all[actions.count++] = {second.kind, static_cast<std::size_t>(second.stage.value)};
  }
  return actions;
}

Actions gradients_of(const Instruction& in, const std::vector<Action>& partners) {
  Actions gradients;
  for (const auto& action : actions_of(in, partners)) {
    if (action.first == ActionKind::W || action.first == ActionKind::B)
      gradients.all[gradients.count++] = action;
  }
  return gradients;
}

class Dividing {
 public:
  Dividing(Row& row, const std::vector<Action>& partners, const StagesOfRank& stages,
           const Updates& updates)
      : row_(row), partners_(partners), stages_(stages), updates_(updates) {}

  void run() {
    // At one place, what a computation waits for goes first, or else what gives up the most.
    const bool gathers = updates_.sharding.divides_weights();
    if (gathers && updates_.early) gather();
    reduce();
    if (gathers && !updates_.early) gather();
    put_in();
  }

 private:
  /// Before each computation what is not computed soon goes, and what is comes.
  void gather() {
    for (std::size_t i = 0; i < row_.size(); ++i) {
      for (const auto& [kind, stage] : actions_of(row_[i], partners_)) uses_[stage].push_back(i);
    }
    std::vector<std::size_t> held;
    const auto has = [](const std::vector<std::size_t>& list, std::size_t stage) {
      return std::find(list.begin(), list.end(), stage) != list.end();
    };
    std::size_t after_last = 0;  // the place after the latest computation
    for (std::size_t i = 0; i < row_.size(); ++i) {
      if (!is_compute(row_[i].kind)) continue;
      const std::size_t at = updates_.early ? after_last : i;
      const std::vector<std::size_t> soon = next_stages(i);
      std::erase_if(held, [&](std::size_t stage) {
        if (has(soon, stage)) return false;
        add(at, ActionKind::Reshard, stage);
        return true;
      });
      for (const std::size_t stage : soon) {
        if (has(held, stage)) continue;
        held.push_back(stage);
        add(at, ActionKind::Unshard, stage);
      }
      after_last = i + 1;
    }
    for (const std::size_t stage : held) add(row_.size(), ActionKind::Reshard, stage);
  }

  /// The stage computed at this place of the row, and those that come next: as many as are looked
  /// ahead for, of a pair both.
  std::vector<std::size_t> next_stages(std::size_t place) {
    std::vector<std::pair<std::size_t, std::size_t>> next;  // place, stage
    for (auto& [stage, places] : uses_) {
      std::size_t& at = next_use_[stage];
      while (at < places.size() && places[at] < place) ++at;
      if (at < places.size()) next.emplace_back(places[at], stage);
    }
    std::sort(next.begin(), next.end());
    std::vector<std::size_t> stages;
    for (const auto& [at, stage] : next) {
      const auto wanted = static_cast<std::size_t>(1 + updates_.sharding.ahead);
      if (stages.size() >= wanted && at != next[wanted - 1].first) break;
      stages.push_back(stage);
    }
    return stages;
  }

  /// A run ends before the first W or B of another stage.
  void reduce() {
    Actions open;
    std::size_t last = 0;
    const auto end_run = [&](const Actions& next) {
      for (const auto& [kind, stage] : open) {
        if (!next.has(stage)) add(behind_gradient(last), ActionKind::ReduceGrad, stage);
      }
    };
    for (std::size_t i = 0; i < row_.size(); ++i) {
      const Actions now = gradients_of(row_[i], partners_);
      if (now.count == 0) continue;
      end_run(now);
      open = now;
      last = i;
    }
    end_run({});
  }

  /// Where it holds up the compute lane, what others wait for goes first.
  std::size_t behind_gradient(std::size_t at) const {
    ++at;
    while (!updates_.early && at < row_.size() && is_transfer(row_[at].kind)) ++at;
    return at;
  }

  void add(std::size_t at, ActionKind kind, std::size_t stage) {
    const auto& wanted = kind == ActionKind::ReduceGrad ? stages_.reduce : stages_.gather;
    if (wanted[stage] == 0) return;
    Instruction in;
    in.kind = kind;
    in.stage = static_cast<std::uint16_t>(stage);
    added_.emplace_back(at, in);
  }

  void put_in() {
    std::stable_sort(added_.begin(), added_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Row all;
    all.reserve(row_.size() + added_.size());
    auto next = added_.begin();
    for (std::size_t i = 0; i <= row_.size(); ++i) {
      for (; next != added_.end() && next->first == i; ++next) all.push_back(next->second);
      if (i < row_.size()) all.push_back(row_[i]);
    }
    row_ = std::move(all);
  }

  Row& row_;
  const std::vector<Action>& partners_;
  const StagesOfRank& stages_;
  const Updates& updates_;
  std::map<std::size_t, std::vector<std::size_t>> uses_;    // by stage: places that compute it
  std::map<std::size_t, std::size_t> next_use_;             // of these
  std::vector<std::pair<std::size_t, Instruction>> added_;  // before which place of the row
};

}  // namespace

std::vector<std::size_t> pipelines_of(const Draft& draft, std::size_t micro_batches) {
  const std::size_t ranks = draft.ranks.size();
  std::vector<std::size_t> joined(ranks);  // with a rank that is no later one
  std::iota(joined.begin(), joined.end(), std::size_t{0});
  const auto first = [&](std::size_t rank) {
    while (joined[rank] != rank) rank = joined[rank] = joined[joined[rank]];
    return rank;
  };
  std::vector<std::size_t> rank_of(micro_batches, ranks);
  const auto join = [&](std::size_t rank, std::size_t micro_batch) {
    std::size_t& known = rank_of[micro_batch];
    if (known == ranks) known = rank;
    const std::size_t a = first(known), b = first(rank);
    joined[std::max(a, b)] = std::min(a, b);
  };
  for (std::size_t r = 0; r < ranks; ++r) {
    for (const Instruction& in : draft.ranks[r]) {
      if (!is_compute(in.kind)) continue;
      join(r, in.micro_batch);
      if (in.has(Instruction::kPair))
        join(r, static_cast<std::size_t>(draft.partners[in.link].micro_batch.value));
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) joined[r] = first(r);
  return joined;
}

bool compute_alike(const Draft& draft, std::size_t one, std::size_t other) {
  const Row &a = draft.ranks[one], &b = draft.ranks[other];
  const auto next = [&](const Row& row, std::size_t& at) {
    while (at < row.size() && !is_compute(row[at].kind)) ++at;
    return at < row.size() ? actions_of(row[at++], draft.partners) : Actions{};
  };
  for (std::size_t i = 0, k = 0;;) {
    const Actions of_a = next(a, i), of_b = next(b, k);
    if (!std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end())) return false;
    if (of_a.count == 0) return true;
  }
}

void divide_among_replicas(std::size_t rank, const StagesOfRank& stages, const Updates& updates,
                           Draft& draft) {
  Dividing(draft.ranks[rank], draft.partners, stages, updates).run();
}

}  // namespace pipewright::lowering
