#include "planner/search/search_json.hpp"

namespace pipewright::planner {
namespace {

/// One word for all stages, or a word for each.
Json recompute_json(const SetupRecompute& recompute) {
  if (!recompute.by_stage) return to_string(recompute.of_all);
  Json list = Json::array();
  for (const LayerRecompute kind : recompute.of_stage) list.push_back(to_string(kind));
  return list;
}

}  // namespace

Json candidate_fields(const Candidate& candidate) {
  std::vector<int> layers;
  for (const StagePlan& stage : candidate.stages)
    layers.push_back(stage.end_layer - stage.first_layer);
  const ParallelSetup& parallel = candidate.parallel;
  Json fields = {{"schedule", candidate.schedule},
                 {"tp", parallel.tensor},
                 {"pp", parallel.pipeline},
                 {"dp", parallel.data},
                 {"cp", parallel.context},
                 {"ep", parallel.experts},
                 {"etp", parallel.expert_tensor()},
                 {"vpp", parallel.chunks},
                 {"stage_replicas", parallel.stage_replicas},
                 {"devices", candidate.devices()},
                 {"micro_batches", parallel.micro_batches},
                 {"micro_batch_size", parallel.micro_batch_size},
                 {"recompute", recompute_json(parallel.recompute)},
                 {"sequence_parallel", parallel.sequence_parallel},
                 {"zero", parallel.zero},
                 {"rank_order", name_of(parallel.order.of_ranks)},
                 {"node_order", to_text(parallel.order.of_nodes)},
                 {"partition", candidate.partition},
                 {"layers_of_stage", layers},
                 {"step_ns", candidate.step.value},
                 {"bubble_ratio", candidate.bubble_ratio},
                 {"peak_activations", candidate.peak_activations},
                 {"peak_bytes", candidate.peak_bytes.value},
                 {"fullest_rank", candidate.fullest_rank},
                 {"state_bytes", candidate.state_bytes.value}};
  if (parallel.ring) fields["cp_comm_type"] = "p2p";
  if (candidate.synthesised) fields["synthesised_from"] = candidate.synthesised->from;
  return fields;
}

Json costing_fields(const Costing& costing) {
  return {{"way", costing.way}, {"why", costing.why}, {"otherwise", costing.otherwise}};
}

Json search_fields(const SearchResult& result) {
  const auto list = [](const std::vector<Candidate>& candidates) {
    Json json = Json::array();
    for (const Candidate& candidate : candidates) json.push_back(candidate_fields(candidate));
    return json;
  };
  Json fields = {{"best", result.best ? candidate_fields(result.ranked.front()) : Json(nullptr)},
                 {"ranked", list(result.ranked)},
                 {"baselines", list(result.baselines)},
                 {"pruned", by_sentence(result.pruned)},
                 {"examples", by_sentence(result.examples)},
                 {"configurations", result.configurations},
                 {"evaluated", result.evaluated},
                 {"complete", result.complete},
                 {"elapsed_ns", result.elapsed_ns}};
  for (std::size_t i = 0; i < result.intervals.size(); ++i) {
    const StepInterval& interval = result.intervals[i];
    fields["ranked"][i]["interval_ns"] = {interval.low.value, interval.high.value};
    fields["ranked"][i]["told_from_first"] = interval.told_from_first;
  }
  if (result.drawn_best) fields["drawn_steps"] = to_json(*result.drawn_best);
  if (!result.nearest.empty()) fields["nearest"] = result.nearest;
  if (!result.front.empty()) fields["front"] = list(result.front);
  if (result.not_executable) fields["not_executable"] = candidate_fields(*result.not_executable);
  if (const auto& done = result.synthesis) {
    fields["synthesis_on_winners"] = {{"winners", done->winners},
                                      {"better", done->better},
                                      {"gain", done->gain},
                                      {"orders", done->orders}};
  }
  return fields;
}

}  // namespace pipewright::planner
