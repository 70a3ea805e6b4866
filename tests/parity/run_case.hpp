// What the parity tests run: the schedules, pipeline sizes and policies of the conformance matrix,
// and a small model to train on them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/model/layers.hpp"
#include "core/model/model.hpp"
#include "core/plan/plan.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::tests {

struct RunCase {
  std::string schedule;
  int ranks = 1;
  int micro_batches = 4;
  int chunks = 1;
  std::string policy;
};

inline std::string name_of(const RunCase& c) {
  std::string name = c.schedule + "_pp" + std::to_string(c.ranks) + "_" + c.policy;
  for (char& letter : name) {
    if (letter == '-' || letter == '.') letter = '_';
  }
  return name;
}

/// One preset for each way of communicating: without batches in an order, `batches` says nothing.
inline std::vector<std::string_view> presets_apart() {
  std::vector<CommPolicy> seen;
  std::vector<std::string_view> names;
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    CommPolicy policy = preset.policy;
    policy.batches = Batches::Apart;
    if (std::find(seen.begin(), seen.end(), policy) != seen.end()) continue;
    seen.push_back(policy);
    names.push_back(preset.name);
  }
  return names;
}

/// Schedules x pipeline sizes x policy presets.
inline std::vector<RunCase> all_run_cases() {
  std::vector<RunCase> cases;
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"}) {
    for (const int ranks : {1, 2, 4}) {
      for (const std::string_view preset : presets_apart()) {
        const int chunks = std::string(schedule) == "interleaved" ? 2 : 1;
        cases.push_back({schedule, ranks, 8, chunks, std::string(preset)});
      }
    }
  }
  return cases;
}

inline Program program_of(const RunCase& c) {
  const Order order = planner::make_order(
      c.schedule,
      {.ranks = c.ranks, .micro_batches = c.micro_batches, .chunks = c.chunks, .parameters = {}});
  return lower(order, comm_policy_preset(c.policy), {.optimizer = true});
}

/// Unequal costs, so that ranks wait for one another; `unit` is the shortest action.
inline CostTable costs_of(const Program& program, std::int64_t unit) {
  const StageCosts each{.f = Nanoseconds(2 * unit),
                        .i = Nanoseconds(3 * unit),
                        .w = Nanoseconds(unit),
                        .b = Nanoseconds(4 * unit),
                        .opt = Nanoseconds(unit)};
  CostTable costs = CostTable::uniform(program.stages, each, Nanoseconds(unit / 2));
  for (std::size_t s = 0; s < costs.stages.size(); s += 2)
    costs.stages[s].f = Nanoseconds(3 * unit);
  return costs;
}

/// 16 -> 24 -> … -> 8 with eight layers, one a stage at the finest cut.
inline Model small_model() {
  Model model;
  model.name = "small";
  model.loss = LossKind::Mse;
  const auto linear = [](int in, int out) { return linear_layer("", in, out); };
  const auto plain = [](LayerKind kind, int width) { return layer_of_width("", kind, width); };
  model.layers = {
      linear(16, 24), plain(LayerKind::Gelu, 24), linear(24, 24), plain(LayerKind::LayerNorm, 24),
      linear(24, 20), plain(LayerKind::Relu, 20), linear(20, 20), linear(20, 8)};
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    model.layers[i].name = "layer" + std::to_string(i);
  }
  return model;
}

/// The layers cut into equal stages.
inline std::vector<StagePlan> equal_stages(const Model& model, const Program& program) {
  const int layers = static_cast<int>(model.layers.size());
  std::vector<StagePlan> stages;
  for (int s = 0; s < program.stages; ++s) {
    stages.push_back({.first_layer = s * layers / program.stages,
                      .end_layer = (s + 1) * layers / program.stages,
                      .rank = program.placement.rank_of(StageId(s), MicroBatchId(0))});
  }
  return stages;
}

/// Micro-batches that the schedule takes on so many ranks; 0: none of these.
inline int micro_batches_for(const planner::Schedule& schedule, int ranks) {
  for (const int m : {2 * ranks, ranks, 4 * ranks}) {
    if (!planner::refusal_of(schedule, {ranks, m, schedule.default_chunks, {}})) return m;
  }
  return 0;
}

inline std::vector<const planner::Schedule*> synchronous_schedules() {
  std::vector<const planner::Schedule*> found;
  for (const planner::Schedule& one : planner::schedules()) {
    if (!one.traits.asynchronous) found.push_back(&one);
  }
  return found;
}

/// A test's name.
inline std::string name_of(const planner::Schedule& schedule) {
  std::string name(schedule.name);
  for (char& letter : name) {
    if (letter == '-') letter = '_';
  }
  return name;
}

}  // namespace pipewright::tests
