#include "core/spmd/graph/step_calls.hpp"

#include <algorithm>
#include <set>

#include "core/order/call.hpp"
#include "core/spmd/reshard_steps.hpp"

namespace pipewright::spmd {
namespace {

class CallRows {
 public:
  explicit CallRows(const OperatorGraph& graph) : graph_(graph) {
    int most = 0;
    for (const NamedMesh& one : graph.meshes) {
      most = std::max(most, *std::max_element(one.mesh.ranks.begin(), one.mesh.ranks.end()));
    }
    rows_.resize(static_cast<std::size_t>(most) + 1);
  }

  void add(ActionKind kind, const std::string& data, const std::vector<int>& ranks) {
    if (ranks.size() < 2) return;
    std::string group = "ranks";
    for (const int rank : ranks) group += "." + std::to_string(rank);
    const Call call{.kind = kind, .group = group, .data = as_call_name(data)};
    for (const int rank : ranks) {
      std::string& row = rows_[static_cast<std::size_t>(rank)];
      row += (row.empty() ? "" : ",") + to_string(call);
    }
  }

  void add(const TrainingSteps& steps, const TrainingStep& move, const std::string& number) {
    const TrainingArray& from = steps.arrays[*move.inputs[0]];
    const std::string data = graph_.tensors[from.tensor].name + "." + number;
    std::vector<int> before = graph_.meshes[from.mesh].mesh.ranks;
    for (const ReshardStep& step : move.plan.steps) {
      const auto kind = kind_of_call(step.kind);
      if (step.kind == ReshardStep::Kind::Exchange) {
        std::set<int> both(before.begin(), before.end());
        both.insert(step.after.mesh.ranks.begin(), step.after.mesh.ranks.end());
        add(*kind, data, {both.begin(), both.end()});
      } else if (kind) {
        for (const std::vector<int>& group : step.groups) add(*kind, data, group);
      }
      before = step.after.mesh.ranks;
    }
  }

  std::string text() const {
    std::string all;
    for (const std::string& row : rows_) all += row + "\n";
    return all;
  }

 private:
  const OperatorGraph& graph_;
  std::vector<std::string> rows_;
};

}  // namespace

std::optional<ActionKind> kind_of_call(ReshardStep::Kind kind) {
  switch (kind) {
    case ReshardStep::Kind::AllGather:
      return ActionKind::AllGather;
    case ReshardStep::Kind::AllReduce:
      return ActionKind::AllReduce;
    case ReshardStep::Kind::ReduceScatter:
      return ActionKind::ReduceScatter;
    case ReshardStep::Kind::AllToAll:
    case ReshardStep::Kind::Exchange:
      return ActionKind::AllToAll;
    default:
      return std::nullopt;  // each process by itself
  }
}

bool is_loss_of_classes(const GraphOperator& one) {
  return one.rule == "cross_entropy_with_softmax" || one.rule == "c_softmax_with_cross_entropy";
}

std::vector<std::vector<int>> groups_of_classes(const OperatorGraph& completed,
                                                const GraphOperator& one) {
  if (!is_loss_of_classes(one)) return {};
  const std::vector<int>& dims = one.annotation.inputs[0]->dims.back();
  if (dims.empty()) return {};
  return groups_along(completed.meshes[*one.annotation.mesh].mesh, dims);
}

std::string calls_of(const OperatorGraph& completed, const TrainingSteps& steps) {
  CallRows rows(completed);
  for (std::size_t at = 0; at < steps.steps.size(); ++at) {
    const TrainingStep& step = steps.steps[at];
    const std::string number = std::to_string(at);
    if (step.kind == TrainingStep::Kind::Move) rows.add(steps, step, number);
    if (step.kind != TrainingStep::Kind::Forward) continue;
    const GraphOperator& one = completed.operators[step.at];
    for (const char* what : {".largest.", ".exponentials."}) {
      for (const std::vector<int>& group : groups_of_classes(completed, one)) {
        rows.add(ActionKind::AllReduce, one.name + what + number, group);
      }
    }
  }
  return rows.text();
}

}  // namespace pipewright::spmd
