// The models, partitions and Programs that the studies of this folder train.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/transformer.hpp"
#include "core/plan/plan.hpp"
#include "core/program/lower.hpp"
#include "exec/base/random.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::bench {

/// Byte level, `blocks` transformer blocks of width 128.
inline Model gpt(int blocks) {
  Model model;
  model.name = "gpt-" + std::to_string(blocks);
  model.layers = expand(
      {.hidden = 128, .layers = blocks, .heads = 4, .ffn = 512, .vocabulary = 256, .sequence = 64});
  model.sequence = 64;
  return model;
}

/// Linear layers of four widths in turn with a gelu behind each, so that layers differ.
inline Model mlp(int linears) {
  Model model;
  model.name = "mlp-" + std::to_string(linears);
  model.loss = LossKind::Mse;
  constexpr int kWidths[] = {512, 768, 384, 640};
  for (int l = 0; l < linears; ++l) {
    const int in = kWidths[l % 4], out = kWidths[(l + 1) % 4];
    model.layers.push_back(
        {.name = "linear " + std::to_string(l), .kind = LayerKind::Linear, .in = in, .out = out});
    model.layers.push_back(
        {.name = "gelu " + std::to_string(l), .kind = LayerKind::Gelu, .in = out, .out = out});
  }
  return model;
}

/// The same number of layers a stage, give or take one; or, from a seed other than 0, cut anywhere.
inline std::vector<StagePlan> partition(const Model& model, const Program& program,
                                        std::uint64_t seed) {
  const auto layers = static_cast<int>(model.layers.size());
  std::vector<int> cuts;  // between layers, ascending
  if (seed == 0) {
    for (int s = 1; s < program.stages; ++s) cuts.push_back(s * layers / program.stages);
  } else {
    int left = program.stages - 1;
    for (int l = 1; l < layers && left > 0; ++l) {
      const auto places = static_cast<std::uint64_t>(layers - l);
      if (exec::uniform_below(seed, static_cast<std::uint64_t>(l), places) >=
          static_cast<std::uint64_t>(left))
        continue;
      cuts.push_back(l);
      --left;
    }
  }
  cuts.push_back(layers);
  std::vector<StagePlan> stages;
  for (int s = 0; s < program.stages; ++s) {
    stages.push_back({.first_layer = s == 0 ? 0 : cuts[static_cast<std::size_t>(s) - 1],
                      .end_layer = cuts[static_cast<std::size_t>(s)],
                      .rank = program.placement.rank_of(StageId(s), MicroBatchId(0))});
  }
  return stages;
}

/// With the update, under the policy that plans have.
inline Program training_program(const std::string& schedule, int ranks, int micro_batches,
                                int chunks) {
  const Order order = planner::make_order(
      schedule,
      {.ranks = ranks, .micro_batches = micro_batches, .chunks = chunks, .parameters = {}});
  return lower(order, CommPolicy{}, {.optimizer = true});
}

}  // namespace pipewright::bench
