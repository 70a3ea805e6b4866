#include "tools/commands/spmd/pipeline_flags.hpp"

#include "planner/schedules/registry.hpp"
#include "tools/cli/arguments.hpp"

namespace pipewright::tools {

std::vector<Flag> pipeline_flags() {
  return {
      {.group = "Pipeline",
       .name = "--schedule-mode",
       .argument = "NAME",
       .help = "1F1B, VPP, ZBVPP or another schedule; default: the graph's, else 1F1B"},
      {.group = "Pipeline",
       .name = "--vpp-degree",
       .argument = "N",
       .help = "chunks of a stage; default: the graph's, else 1"},
      {.group = "Pipeline",
       .name = "--vpp-seg-method",
       .argument = "METHOD",
       .help =
           "where a stage may be cut: layer:NAME, between layers with NAME in the names of their "
           "operators, or uniform; default: the graph's"},
      {.group = "Pipeline",
       .name = "--accumulate-steps",
       .argument = "N",
       .help = "micro-batches of a step, each as large as the graph's data; default: the graph's, "
               "else 1"},
  };
}

void take_pipeline_flags(const Arguments& arguments, spmd::OperatorGraph& graph) {
  constexpr int kMostChunks = 10'000, kMostMicroBatches = 10'000;
  spmd::GraphPipeline pipeline = graph.pipeline.value_or(spmd::GraphPipeline{});
  pipeline.schedule_mode = arguments.text_or("--schedule-mode", pipeline.schedule_mode);
  pipeline.vpp_degree = arguments.integer_or("--vpp-degree", 1, kMostChunks, pipeline.vpp_degree);
  pipeline.accumulate_steps =
      arguments.integer_or("--accumulate-steps", 1, kMostMicroBatches, pipeline.accumulate_steps);
  if (const auto method = arguments.text("--vpp-seg-method")) pipeline.vpp_seg_method = method;
  if (!graph.pipeline && pipeline == spmd::GraphPipeline{} && !arguments.has("--schedule-mode")) {
    return;
  }
  const planner::Schedule& schedule = planner::find_schedule(pipeline.schedule_mode);
  if (schedule.layout == planner::Layout::V || schedule.layout == planner::Layout::Waves) {
    pipeline.placement = spmd::PartPlacement::V;
  } else if (schedule.layout == planner::Layout::Loop && schedule.default_chunks > 1) {
    pipeline.placement = spmd::PartPlacement::Loop;
  } else {
    pipeline.placement = spmd::PartPlacement::OneEach;
  }
  graph.pipeline = pipeline;
}

}  // namespace pipewright::tools
