// PaddlePaddle: a dictionary for paddle.distributed.Strategy (auto_parallel/constants.py), with
// fleet's hybrid_configs beside it, which Strategy passes over.
#include "planner/export/paddle_facts.hpp"
#include "planner/export/rank_order.hpp"

namespace pipewright::planner {
namespace {

Json pipeline_of(const PlanFacts& facts, const Plan& plan) {
  Json pipeline = {{"enable", facts.pipeline > 1}};
  if (facts.pipeline > 1) {
    pipeline["schedule_mode"] = paddle_schedule_mode(facts.schedule);
    pipeline["pp_degree"] = facts.pipeline;
    pipeline["vpp_degree"] = facts.chunks;
  }
  pipeline["micro_batch_size"] = plan.micro_batch_size;
  pipeline["accumulate_steps"] = plan.micro_batches;
  if (facts.schedule == "paddle-zbh1" || facts.schedule == "zbvpp") {
    pipeline["split_backward"] = true;
  }
  return pipeline;
}

void add_paddle_notes(const PlanFacts& facts, ExportedPlan& result) {
  if (facts.tensor > 1) {
    result.notes.push_back(
        "paddle.distributed.Strategy has no tensor parallelism: the model's meshes have it, or "
        "fleet, by hybrid_configs.mp_degree");
  }
  if (facts.sequence_parallel && facts.tensor > 1) {
    result.notes.push_back("sequence parallelism is the model's code in Paddle, not a field");
  }
  if (facts.recompute == LayerRecompute::Attention) {
    result.notes.push_back(
        "Paddle's strategy recomputes whole segments; the model's code has to recompute attention "
        "alone (recompute_granularity core_attn)");
  }
  if (facts.pipeline > 1 && facts.chunks > 1) {
    result.notes.push_back(
        "set pipeline.vpp_seg_method to the class of the model's blocks: Paddle cuts chunks by it");
  }
  note_uneven_stages(facts, result);
}

}  // namespace

ExportedPlan export_paddle(const Plan& plan) {
  const PlanFacts facts = facts_of(plan);
  ExportedPlan result;
  refuse_for_paddle(facts, result);
  if (!result.refusals.empty()) return result;
  note_lora(facts, result);
  const bool sharded = facts.zero > 0;
  Json document;
  document["pipeline"] = pipeline_of(facts, plan);
  document["sharding"] = {{"enable", sharded}};
  if (sharded) {
    document["sharding"]["stage"] = facts.zero;
    document["sharding"]["degree"] = facts.shards;
  }
  document["recompute"] = {{"enable", facts.recompute == LayerRecompute::Whole}};
  if (facts.pipeline == 1 && plan.micro_batches > 1) {
    document["gradient_merge"] = {{"enable", true}, {"k_steps", plan.micro_batches}, {"avg", true}};
  }
  if (plan.model.bytes_per_element == 2) {
    document["amp"] = {{"enable", true}, {"dtype", "bfloat16"}, {"level", "o2"}};
  }
  document["hybrid_configs"] = {{"dp_degree", facts.data / facts.shards},
                                {"mp_degree", facts.tensor},
                                {"pp_degree", facts.pipeline},
                                {"sharding_degree", facts.shards}};
  add_paddle_notes(facts, result);
  // Its order is dp, pp, sharding, sep, mp, the last fastest; what is sharded is inside the
  // pipeline.
  note_rank_order(plan, "Paddle", !sharded,
                  std::string("set hybrid_configs.order to ") +
                      (sharded ? "dp, sharding, pp, sep, mp" : "pp, dp, sharding, sep, mp"),
                  result);
  result.text = to_text(document);
  return result;
}

}  // namespace pipewright::planner
