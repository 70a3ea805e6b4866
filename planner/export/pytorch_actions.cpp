#include "planner/export/pytorch_actions.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/order/forward_order.hpp"
#include "core/program/lower.hpp"

namespace pipewright::planner {
namespace {

using ActionRow = std::vector<Cell>;

template <class Visit>
void for_each_action(const Cell& cell, Visit visit) {
  visit(cell.action);
  if (cell.partner) visit(*cell.partner);
}

template <class Has>
bool any_action(const Order& order, Has has) {
  return std::any_of(order.ranks.begin(), order.ranks.end(), [&](const ActionRow& row) {
    return std::any_of(row.begin(), row.end(), [&](const Cell& cell) {
      return has(cell.action) || (cell.partner && has(*cell.partner));
    });
  });
}

bool holds(const Order& order, ActionKind kind) {
  return any_action(order, [kind](const Action& a) { return a.kind == kind; });
}

bool is_weight_gradient(ActionKind kind) { return kind == ActionKind::W || kind == ActionKind::B; }

/// What is added around the computations of one rank, in one walk along its list.
class Collectives {
 public:
  struct Wanted {
    bool gathering = false, reductions = false, waits = false;
  };

  Collectives(const ActionRow& row, const Wanted& wanted) : row_(row), wanted_(wanted) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      for_each_action(row[k], [&](const Action& a) {
        if (!is_compute(a.kind)) return;
        uses_[a.stage.value].push_back(k);
        if (is_weight_gradient(a.kind)) last_gradient_[a.stage.value] = k;
      });
    }
  }

  ActionRow run() {
    for (std::size_t k = 0; k < row_.size(); ++k) {
      const Cell& cell = row_[k];
      if (!is_send(cell.action.kind)) reduce();  // what waits for the data goes first
      if (is_compute(cell.action.kind) && wanted_.gathering) gather(k);
      list_.push_back(cell);
      for_each_action(cell, [&](const Action& a) { note(a, k); });
    }
    reduce();
    for (const int stage : active_) add(ActionKind::Reshard, stage);
    return std::move(list_);
  }

 private:
  /// PyTorch keeps the weights of three stages, and of both stages of a pair.
  static constexpr std::size_t kActiveStages = 3;

  void add(ActionKind kind, int stage) {
    list_.push_back({{kind, StageId(stage), MicroBatchId(0)}, std::nullopt});
  }

  /// The stages that are computed next, in the order of their next computation from cell `k` on.
  std::vector<int> next_stages(std::size_t k) {
    std::vector<std::pair<std::size_t, int>> next;  // cell, stage
    for (auto& [stage, cells] : uses_) {
      std::size_t& at = next_use_[stage];
      while (at < cells.size() && cells[at] < k) ++at;
      if (at < cells.size()) next.emplace_back(cells[at], stage);
    }
    std::sort(next.begin(), next.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      return row_[a.first].action.stage.value == a.second && a.second != b.second;
    });
    std::vector<int> stages;
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (i >= kActiveStages && next[i].first != next[kActiveStages - 1].first) break;
      stages.push_back(next[i].second);
    }
    return stages;
  }

  void gather(std::size_t k) {
    const std::vector<int> soon = next_stages(k);
    std::erase_if(active_, [&](int stage) {
      if (std::find(soon.begin(), soon.end(), stage) != soon.end()) return false;
      add(ActionKind::Reshard, stage);
      return true;
    });
    for (const int stage : soon) {
      if (active_.insert(stage).second) add(ActionKind::Unshard, stage);
    }
  }

  void note(const Action& a, std::size_t k) {
    const bool last = is_weight_gradient(a.kind) && last_gradient_.at(a.stage.value) == k;
    if (last && wanted_.reductions && (to_reduce_.empty() || to_reduce_.back() != a.stage.value))
      to_reduce_.push_back(a.stage.value);
    if (a.kind == ActionKind::ReduceGrad && wanted_.waits)
      add(ActionKind::WaitReduceGrad, a.stage.value);
  }

  void reduce() {
    for (const int stage : std::exchange(to_reduce_, {})) {
      add(ActionKind::ReduceGrad, stage);
      if (wanted_.waits) add(ActionKind::WaitReduceGrad, stage);
    }
  }

  const ActionRow& row_;
  const Wanted wanted_;
  std::map<int, std::vector<std::size_t>> uses_;  // by stage: cells that compute it
  std::map<int, std::size_t> next_use_, last_gradient_;
  std::set<int> active_;
  std::vector<int> to_reduce_;
  ActionRow list_;
};

using Tensor = std::tuple<ActionKind, int, int>;  // of a SEND
Tensor tensor_of(const Action& a) { return {a.kind, a.stage.value, a.micro_batch.value}; }

/// The wait for a SEND_F comes after the backward of the same stage and micro-batch, whose gradient
/// shows that the message has arrived; all other waits come at the end, in the order of the sends.
ActionRow with_waits_for_sends(const ActionRow& row) {
  std::set<Tensor> open, waited;
  std::vector<Action> sends;
  for (const Cell& cell : row) {
    const Action& a = cell.action;
    if (is_send(a.kind)) sends.push_back(a);
    if (is_wait_for_send(a.kind))
      waited.insert({awaited_kind(a.kind), a.stage.value, a.micro_batch.value});
  }
  ActionRow list;
  const auto wait_for = [&](const Action& send) {
    if (!waited.insert(tensor_of(send)).second) return;
    const bool forward = send.kind == ActionKind::SendF;
    list.push_back(
        {{forward ? ActionKind::WaitSendF : ActionKind::WaitSendB, send.stage, send.micro_batch},
         std::nullopt});
  };
  for (const Cell& cell : row) {
    list.push_back(cell);
    if (cell.action.kind == ActionKind::SendF) open.insert(tensor_of(cell.action));
    for_each_action(cell, [&](const Action& a) {
      if (a.kind != ActionKind::I && a.kind != ActionKind::B) return;
      const Action send{ActionKind::SendF, a.stage, a.micro_batch};
      if (open.count(tensor_of(send)) != 0) wait_for(send);
    });
  }
  for (const Action& send : sends) wait_for(send);
  return list;
}

/// The runtime appends each loss of the last stage to a list and takes that of micro-batch m from
/// its place m (_maybe_compute_loss and _maybe_get_loss, 2.13).
std::optional<std::string> refusal_of_losses(const Order& order) {
  std::optional<std::string> refusal;
  for (const ActionRow& row : order.ranks) {
    int next = 0;
    for (const Cell& cell : row) {
      for_each_action(cell, [&](const Action& a) {
        if (a.kind != ActionKind::F || a.stage.value + 1 != order.stages() || refusal) return;
        if (a.micro_batch.value != next) {
          refusal =
              "PyTorch's runtime takes the losses for those of micro-batches in ascending "
              "order, and the order's last stage computes " +
              to_string(a) + " where micro-batch " + std::to_string(next) +
              " would be next; order its forwards by micro-batch";
        }
        ++next;
      });
    }
  }
  return refusal;
}

}  // namespace

std::optional<TorchRelease> torch_release(std::string_view name) {
  for (const TorchRelease release : {TorchRelease::V2_13, TorchRelease::V2_15}) {
    if (name == to_string(release)) return release;
  }
  return std::nullopt;
}

std::string_view to_string(TorchRelease release) {
  return release == TorchRelease::V2_13 ? "2.13" : "2.15";
}

TorchRelease lists_of(const sim::TorchVersion& version) {
  return version < sim::TorchVersion{2, 15} ? TorchRelease::V2_13 : TorchRelease::V2_15;
}

std::optional<std::string> torch_refusal_of(const Order& order) {
  const auto updates = [](const Action& a) {
    return a.version >= 0 || a.kind == ActionKind::Opt || is_of_all(a.kind);
  };
  if (any_action(order, updates)) {
    return "PyTorch's runtime has no updates, norms or weight versions inside a step, and the "
           "order has; take a synchronous schedule";
  }
  if (order.placement.looks_at_micro_batch()) {
    return "PyTorch's runtime has each stage on one rank, and the order has a stage on several; "
           "take a schedule without replicas";
  }
  if (any_action(order, [](const Action& a) { return is_call(a.kind); })) {
    return "PyTorch's runtime has transfers between neighbouring stages only, and the order has "
           "calls of its own; take an order without calls";
  }
  return refusal_of_losses(order);
}

std::optional<std::string> torch_training_refusal_of(const Order& order) {
  if (is_forward_only(order)) {
    return "PyTorch's runtime asks for a backward of every forward, and the order has none; take "
           "an order of a training, whose forwards its eval() runs too";
  }
  return torch_refusal_of(order);
}

bool holds_computations_alone(const Order& order) {
  return !any_action(
      order, [](const Action& a) { return !is_compute(a.kind) && a.kind != ActionKind::Idle; });
}

Order torch_actions(const Order& order, TorchRelease release) {
  const Collectives::Wanted wanted{
      .gathering = !holds(order, ActionKind::Unshard) && !holds(order, ActionKind::Reshard),
      .reductions = !holds(order, ActionKind::ReduceGrad),
      .waits = release == TorchRelease::V2_15 && !holds(order, ActionKind::WaitReduceGrad)};
  Order listed = order;
  for (ActionRow& row : listed.ranks) {
    std::erase_if(row, [](const Cell& cell) { return cell.action.kind == ActionKind::Idle; });
    for (Cell& cell : row) cell.batched = false;  // its files have no batches
    row = Collectives(row, wanted).run();
  }
  if (!order.has_transfers()) listed = with_transfers(listed);
  if (release == TorchRelease::V2_15) {
    for (ActionRow& row : listed.ranks) row = with_waits_for_sends(row);
  }
  return listed;
}

TorchFile torch_file(const Order& order, TorchRelease release) {
  if (holds_computations_alone(order)) return {write_order_csv(order), "compute_only"};
  return {write_order_csv(torch_actions(order, release)), "compute_comms"};
}

}  // namespace pipewright::planner
