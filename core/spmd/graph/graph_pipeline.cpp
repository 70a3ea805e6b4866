#include "core/spmd/graph/graph_pipeline.hpp"

#include "core/base/json_fields.hpp"

namespace pipewright::spmd {

std::size_t stage_in_round(PartPlacement placement, std::size_t round, std::size_t at,
                           std::size_t count) {
  const bool goes_back = placement == PartPlacement::V && round % 2 == 1;
  return goes_back ? count - 1 - at : at;
}

PartPlacement part_placement_of(std::string_view schedule_mode) {
  if (schedule_mode == "VPP") return PartPlacement::Loop;
  return schedule_mode == "ZBVPP" ? PartPlacement::V : PartPlacement::OneEach;
}

GraphPipeline read_pipeline(const JsonCursor& value) {
  value.only({"schedule_mode", "vpp_degree", "vpp_seg_method", "accumulate_steps"});
  GraphPipeline pipeline;
  if (const auto mode = value.find("schedule_mode")) {
    pipeline.schedule_mode = read_name(*mode);
    pipeline.placement = part_placement_of(pipeline.schedule_mode);
  }
  constexpr int kMostParts = 10'000;
  if (const auto degree = value.find("vpp_degree")) {
    pipeline.vpp_degree = read_count(*degree, 1, kMostParts);
  }
  if (const auto method = value.find("vpp_seg_method")) {
    pipeline.vpp_seg_method = read_name(*method);
  }
  if (const auto steps = value.find("accumulate_steps")) {
    pipeline.accumulate_steps = read_count(*steps, 1, kMostParts);
  }
  return pipeline;
}

Json to_json(const GraphPipeline& pipeline) {
  const GraphPipeline other;
  Json fields = {{"schedule_mode", pipeline.schedule_mode}};
  if (pipeline.vpp_degree != other.vpp_degree) fields["vpp_degree"] = pipeline.vpp_degree;
  if (pipeline.vpp_seg_method) fields["vpp_seg_method"] = *pipeline.vpp_seg_method;
  if (pipeline.accumulate_steps != other.accumulate_steps) {
    fields["accumulate_steps"] = pipeline.accumulate_steps;
  }
  return fields;
}

}  // namespace pipewright::spmd
