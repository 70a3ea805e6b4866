#include "core/order/versions.hpp"

#include <algorithm>

namespace pipewright {
namespace {

constexpr std::int32_t kUnknown = -2;  // no such action; -1 is an action without a version

/// The versions by stage and micro-batch, then a walk along the lists that counts the updates.
class VersionCheck {
 public:
  VersionCheck(const Order& order, std::size_t most)
      : order_(order),
        most_(most),
        forward_(tensors(), kUnknown),
        input_gradient_(tensors(), kUnknown) {}

  std::vector<std::string> find() {
    for (const auto& row : order_.ranks) {
      for (const Cell& cell : row) {
        note(cell.action);
        if (cell.partner) note(*cell.partner);
      }
    }
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) walk(r);
    return std::move(problems_);
  }

 private:
  std::size_t tensors() const {
    return static_cast<std::size_t>(order_.stages()) *
           static_cast<std::size_t>(order_.micro_batches);
  }
  bool is_known(const Action& a) const {
    return is_compute(a.kind) && a.stage.value < order_.stages() &&
           a.micro_batch.value < order_.micro_batches;
  }
  std::size_t place(const Action& a) const {
    return static_cast<std::size_t>(a.stage.value) *
               static_cast<std::size_t>(order_.micro_batches) +
           static_cast<std::size_t>(a.micro_batch.value);
  }

  void note(const Action& a) {
    if (!is_known(a)) return;
    if (a.kind == ActionKind::F) forward_[place(a)] = a.version;
    if (a.kind == ActionKind::I) input_gradient_[place(a)] = a.version;
  }

  void walk(std::size_t rank) {
    std::int32_t updates = 0;
    for (std::size_t i = 0; i < order_.ranks[rank].size() && problems_.size() < most_; ++i) {
      const Cell& cell = order_.ranks[rank][i];
      if (cell.action.kind == ActionKind::Opt) ++updates;
      where_ = " (rank " + std::to_string(rank) + ", action " + std::to_string(i + 1) + ")";
      if (is_known(cell.action)) judge(cell.action, updates);
      if (cell.partner && is_known(*cell.partner)) judge(*cell.partner, updates);
    }
  }

  void judge(const Action& a, std::int32_t updates) {
    if (a.version < 0) {
      if (a.kind != ActionKind::W) {
        say(a, " names no weight version, but others do: name one for every F, I and B, or none");
      }
      return;
    }
    if (a.version > updates) {
      return say(a, " uses weights that do not exist yet: " + std::to_string(updates) +
                        " OPT stand before it, so it can name versions 0 to " +
                        std::to_string(updates));
    }
    if (a.kind == ActionKind::F) return;
    const std::int32_t forward = forward_[place(a)];
    if (forward >= 0 && forward != a.version) {
      return say(a, " uses other weights than the forward, which names version " +
                        std::to_string(forward));
    }
    const std::int32_t input = input_gradient_[place(a)];
    if (a.kind == ActionKind::W && input >= 0 && input != a.version) {
      say(a, " uses other weights than its I, which names version " + std::to_string(input));
    }
  }

  void say(const Action& a, const std::string& what) {
    if (problems_.size() < most_) problems_.push_back(to_string(a) + where_ + what);
  }

  const Order& order_;
  const std::size_t most_;
  std::vector<std::int32_t> forward_, input_gradient_;  // by stage and micro-batch
  std::string where_;                                   // of the cell at hand
  std::vector<std::string> problems_;
};

/// By stage and rank: does the rank compute it, and how many REDUCE_GRADs of it are there.
struct Replica {
  bool computes = false;
  int reductions = 0, unshardings = 0;
};

/// One sentence if not all replicas of the stage have as many of them.
std::vector<std::string> unequal(int stage, const std::vector<Replica>& replicas,
                                 int Replica::*count, const std::string& what) {
  std::size_t first = replicas.size();
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    if (!replicas[r].computes) continue;
    if (first == replicas.size()) first = r;
    const int found = replicas[r].*count, wanted = replicas[first].*count;
    if (found == wanted) continue;
    return {"stage " + std::to_string(stage) + " has replicas, but " + std::to_string(wanted) +
            " " + what + " on rank " + std::to_string(first) + " and " + std::to_string(found) +
            " on rank " + std::to_string(r) + ": each needs a partner"};
  }
  return {};
}

}  // namespace

bool names_versions(const Order& order) {
  const auto names = [](const Action& a) { return is_compute(a.kind) && a.version >= 0; };
  return std::any_of(order.ranks.begin(), order.ranks.end(), [&](const auto& row) {
    return std::any_of(row.begin(), row.end(), [&](const Cell& cell) {
      return names(cell.action) || (cell.partner && names(*cell.partner));
    });
  });
}

std::vector<std::string> version_problems(const Order& order, std::size_t most) {
  if (!names_versions(order)) return {};
  return VersionCheck(order, most).find();
}

std::vector<std::string> reduction_problems(const Order& order) {
  if (!order.placement.looks_at_micro_batch()) return {};  // no stage has replicas
  const std::size_t ranks = order.ranks.size();
  std::vector<Replica> table(ranks * static_cast<std::size_t>(order.stages()));
  bool any = false;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (const Cell& cell : order.ranks[r]) {
      for (const Action* a : {&cell.action, cell.partner ? &*cell.partner : nullptr}) {
        if (a == nullptr || a->stage.value >= order.stages()) continue;
        Replica& replica = table[static_cast<std::size_t>(a->stage.value) * ranks + r];
        if (is_compute(a->kind)) replica.computes = true;
        if (a->kind == ActionKind::ReduceGrad) any = ++replica.reductions > 0;
        if (a->kind == ActionKind::Unshard) any = ++replica.unshardings > 0;
      }
    }
  }
  std::vector<std::string> problems;
  for (int s = 0; any && s < order.stages(); ++s) {
    const auto begin =
        table.begin() + static_cast<std::ptrdiff_t>(s) * static_cast<std::ptrdiff_t>(ranks);
    const std::vector<Replica> replicas(begin, begin + static_cast<std::ptrdiff_t>(ranks));
    for (const auto& found : {unequal(s, replicas, &Replica::reductions, "REDUCE_GRAD"),
                              unequal(s, replicas, &Replica::unshardings, "UNSHARD")})
      problems.insert(problems.end(), found.begin(), found.end());
  }
  return problems;
}

}  // namespace pipewright
