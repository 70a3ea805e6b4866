#include "planner/plans/difference.hpp"

#include <algorithm>
#include <cmath>

#include "core/model/architecture_model.hpp"
#include "core/model/difference.hpp"
#include "core/order/comm_policy_json.hpp"
#include "core/plan/training_json.hpp"

namespace pipewright::planner {
namespace {

/// " (+6.6 %)"; "" where the first is 0.
std::string change(double first, double second) {
  if (first == 0) return "";
  const auto tenths = std::llround((second / first - 1) * 1000);
  const std::string digits =
      std::to_string(std::abs(tenths) / 10) + "." + std::to_string(std::abs(tenths) % 10);
  return std::string(" (") + (tenths < 0 ? "-" : "+") + digits + " %)";
}

class Differences {
 public:
  template <class Value>
  void add(const std::string& what, const Value& first, const Value& second) {
    if (first == second) return;
    list_.push_back(what + " " + text_of(first) + ", then " + text_of(second));
  }
  void add_text(std::string text) {
    if (!text.empty()) list_.push_back(std::move(text));
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  static std::string text_of(int value) { return std::to_string(value); }
  static std::string text_of(bool value) { return value ? "on" : "off"; }
  static const std::string& text_of(const std::string& value) { return value; }

  std::vector<std::string> list_;
};

Bytes fullest(const Plan& plan) {
  Bytes most;
  for (const Bytes bytes : plan.predicted.peak_bytes) most = std::max(most, bytes);
  return most;
}

void add_predictions(const Plan& first, const Plan& second, Differences& differences) {
  const Nanoseconds a = first.predicted.step, b = second.predicted.step;
  if (a != b) {
    differences.add_text("step " + format_duration(a) + ", then " + format_duration(b) +
                         change(static_cast<double>(a.value), static_cast<double>(b.value)));
  }
  const Bytes here = fullest(first), there = fullest(second);
  if (here != there) {
    differences.add_text("fullest rank " + format_bytes(here) + ", then " + format_bytes(there) +
                         change(static_cast<double>(here.value), static_cast<double>(there.value)));
  }
  const auto thousandths = [](const Plan& plan) {
    return static_cast<int>(std::lround(plan.predicted.bubble_ratio * 1000));
  };
  const auto percent = [](int of) {
    return std::to_string(of / 10) + "." + std::to_string(of % 10) + " %";
  };
  differences.add("bubble", percent(thousandths(first)), percent(thousandths(second)));
}

std::string layers_of(const StagePlan& stage) {
  const int last = stage.end_layer - 1;
  return stage.first_layer == last ? std::to_string(last)
                                   : std::to_string(stage.first_layer) + "-" + std::to_string(last);
}

void add_stages(const Plan& first, const Plan& second, Differences& differences) {
  if (first.stages.size() != second.stages.size()) return;  // ranks or chunks say why
  for (std::size_t s = 0; s < first.stages.size(); ++s) {
    const std::string stage = "stage " + std::to_string(s);
    differences.add(stage + " layers", layers_of(first.stages[s]), layers_of(second.stages[s]));
    differences.add(stage + " on rank", static_cast<int>(first.stages[s].rank.value),
                    static_cast<int>(second.stages[s].rank.value));
  }
}

/// By stage where the layers of each do the same, else as the plan has it.
std::string recompute_text(const Plan& plan) {
  const RecomputeSpec& spec = plan.training.recompute;
  const std::string own = to_json(spec).dump();
  if (spec.kind != RecomputeSpec::Kind::Listed) return own;
  const std::vector<LayerRecompute> of_layer = recompute_of(plan.model, spec);
  std::vector<LayerRecompute> of_stage;
  for (const StagePlan& stage : plan.stages) {
    const auto first = of_layer.begin() + stage.first_layer,
               end = of_layer.begin() + stage.end_layer;
    if (std::count(first, end, *first) != end - first) return own;
    of_stage.push_back(*first);
  }
  return "by stage: " + describe_recompute(of_stage);
}

/// Recompute has a line of its own.
Json training_json(const Plan& plan) {
  Json json = to_json(plan.training);
  json.erase("recompute");
  return json;
}

/// Where there is a choice; plans without replicas or without a pipeline have the same.
std::string rank_order_of(const Plan& plan) {
  return plan.mesh.has_pipeline_inside_data() ? "tp-cp-pp-dp (replicas outermost)"
                                              : "tp-cp-dp-pp (the pipeline outermost)";
}

/// Kinds of nodes in the order in which the mesh uses them; "" where there is one.
std::string kinds_in_order(const Plan& plan) {
  std::vector<std::string> models;
  if (plan.cluster.kinds.empty()) return "";
  for (const int device : plan.mesh.devices) {
    const NodeKind kind = kind_of_node(plan.cluster, device / plan.cluster.devices_per_node);
    if (std::find(models.begin(), models.end(), kind.device.model) == models.end())
      models.push_back(kind.device.model);
  }
  std::string list;
  for (const std::string& model : models) list += (list.empty() ? "" : ", ") + model;
  return list;
}

/// "replicas=2,1,1"; "none".
std::string parameters_text(const SchedulePlan& schedule) {
  std::string text;
  for (const auto& [key, value] : schedule.parameters)
    text += (text.empty() ? "" : " ") + key + "=" + value;
  return text.empty() ? "none" : text;
}

std::string order_text(const Plan& plan) {
  return plan.schedule.order ? "its own" : "the schedule's";
}

}  // namespace

std::vector<std::string> plan_differences(const Plan& first, const Plan& second) {
  Differences differences;
  add_predictions(first, second, differences);
  differences.add_text(
      document_difference(described_model_json(first.model, first.architecture), "model: the first",
                          described_model_json(second.model, second.architecture), "the second"));
  differences.add("cluster", fingerprint(first.cluster), fingerprint(second.cluster));
  for (const char* dimension : {"tp", "pp", "dp", "cp"})
    differences.add(dimension, first.mesh.size(dimension), second.mesh.size(dimension));
  differences.add("rank order", rank_order_of(first), rank_order_of(second));
  differences.add("ep", first.expert_parallel, second.expert_parallel);
  if (first.expert_tensor_parallel + second.expert_tensor_parallel > 0)
    differences.add("etp", first.expert_tensor(), second.expert_tensor());
  differences.add("devices", static_cast<int>(first.mesh.devices.size()),
                  static_cast<int>(second.mesh.devices.size()));
  differences.add("nodes in order", kinds_in_order(first), kinds_in_order(second));
  differences.add("schedule", first.schedule.name, second.schedule.name);
  differences.add("chunks", first.schedule.chunks, second.schedule.chunks);
  differences.add("schedule's parameters", parameters_text(first.schedule),
                  parameters_text(second.schedule));
  differences.add("micro-batches", first.micro_batches, second.micro_batches);
  differences.add("micro-batch size", first.micro_batch_size, second.micro_batch_size);
  differences.add("ZeRO stage", first.sharding_stage, second.sharding_stage);
  differences.add("replicas that divide their state", first.shards(), second.shards());
  differences.add("look-ahead of weights", first.unshard_lookahead, second.unshard_lookahead);
  differences.add("keys and values that go round", first.ring, second.ring);
  differences.add("sequence parallelism", first.sequence_parallel, second.sequence_parallel);
  differences.add("recompute", recompute_text(first), recompute_text(second));
  add_stages(first, second, differences);
  if (first.schedule.name == second.schedule.name) {
    const auto rows = [](const Plan& plan) {
      return plan.schedule.order ? plan.schedule.order->ranks : std::vector<std::vector<Cell>>();
    };
    if (order_text(first) != order_text(second)) {
      differences.add("order", order_text(first), order_text(second));
    } else if (rows(first) != rows(second)) {
      differences.add_text("the orders differ");
    }
  }
  differences.add_text(document_difference(to_json(first.policy), "policy: the first",
                                           to_json(second.policy), "the second"));
  differences.add("costs", first.costs.source, second.costs.source);
  differences.add_text(document_difference(training_json(first), "training: the first",
                                           training_json(second), "the second"));
  return differences.take();
}

}  // namespace pipewright::planner
