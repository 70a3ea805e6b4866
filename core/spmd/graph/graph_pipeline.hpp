// How a graph on several meshes is a pipeline: what PaddlePaddle's strategy.pipeline says.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.hpp"

namespace pipewright::spmd {

/// Where the parts of a model are that follow one another.
enum class PartPlacement {
  OneEach,  // a stage has one part
  Loop,     // on stages 0 … p-1, and again
  V,        // on stages 0 … p-1, then p-1 … 0, and so on
};

struct GraphPipeline {
  std::string schedule_mode = "1F1B";
  PartPlacement placement = PartPlacement::OneEach;  // of the schedule
  int vpp_degree = 1;                                // parts of a stage, its chunks
  /// "uniform", or "layer:" and a pattern for the names of layers.
  std::optional<std::string> vpp_seg_method = {};
  int accumulate_steps = 1;  // micro-batches of a step

  bool operator==(const GraphPipeline&) const = default;
};

/// Where in its round a part stands, the first `count` parts being round 0: the stage that has it.
/// And which part of a round a stage has.
std::size_t stage_in_round(PartPlacement placement, std::size_t round, std::size_t at,
                           std::size_t count);

/// Of PaddlePaddle's names: VPP, ZBVPP, and others, whose stages have one part each.
PartPlacement part_placement_of(std::string_view schedule_mode);

GraphPipeline read_pipeline(const JsonCursor& value);
/// What differs from what it is where nothing is said.
Json to_json(const GraphPipeline& pipeline);

}  // namespace pipewright::spmd
