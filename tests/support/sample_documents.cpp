#include "tests/support/sample_documents.hpp"

#include <stdexcept>

#include "core/model/architecture_json.hpp"
#include "core/order/order_json.hpp"
#include "core/plan/framework_json.hpp"
#include "core/plan/job.hpp"
#include "core/spmd/graph/graph_json.hpp"

namespace pipewright::test {

namespace {

Json parsed(const char* text) { return parse_json(text, "sample"); }

Json layer_model() {
  return parsed(R"({
    "schema": "pipewright.model/1", "name": "layers of every kind", "bytes_per_element": 2,
    "sequence": 8, "loss": "softmax_cross_entropy",
    "layers": [
      {"name": "ids", "kind": "embedding", "out": 12, "vocabulary": 50, "positions": 8},
      {"name": "block", "kind": "sequential", "layers": [
        {"name": "attend", "kind": "residual", "layers": [
          {"name": "norm", "kind": "layer_norm", "in": 12},
          {"name": "attention", "kind": "causal_self_attention", "in": 12, "heads": 3}]},
        {"name": "gelu", "kind": "gelu", "in": 12}]},
      {"name": "relu", "kind": "relu", "in": 12},
      {"name": "head", "kind": "linear", "in": 12, "out": 50, "bias": false}]})");
}

Json llama_model() {
  return parsed(R"({
    "schema": "pipewright.model/1", "name": "llama's layers", "loss": "softmax_cross_entropy",
    "sequence": 8,
    "layers": [
      {"name": "ids", "kind": "embedding", "out": 12, "vocabulary": 50},
      {"name": "norm", "kind": "rms_norm", "in": 12},
      {"name": "attention", "kind": "causal_self_attention", "in": 12, "heads": 6, "kv_heads": 2,
       "rotary_base": 10000.0, "bias": false},
      {"name": "up", "kind": "linear", "in": 12, "out": 20, "bias": false},
      {"name": "swiglu", "kind": "swiglu", "in": 20},
      {"name": "head", "kind": "linear", "in": 10, "out": 50, "bias": false}]})");
}

Json llama_shape() {
  return parsed(R"({
    "schema": "pipewright.model/1", "name": "shape", "bytes_per_element": 4,
    "transformer": {"hidden": 16, "layers": 2, "heads": 4, "ffn": 24, "vocabulary": 32,
                    "sequence": 4, "style": "llama", "kv_heads": 2, "rotary_base": 500000.0}})");
}

Json mixture_model() {
  return parsed(R"({
    "schema": "pipewright.model/1", "name": "experts", "loss": "mse", "sequence": 8,
    "layers": [
      {"name": "mixture", "kind": "mixture_of_experts", "in": 12, "experts": 4, "top_k": 2,
       "normalised": false, "capacity_factor": 1.25, "balance_loss": 0.01, "z_loss": 0.001,
       "router_bias": true, "scoring": "sigmoid", "groups": 2, "top_groups": 1, "scaling": 2.5,
       "balance_rate": 0.001,
       "layers": [{"name": "up", "kind": "linear", "in": 12, "out": 20, "bias": true},
                  {"name": "swiglu", "kind": "swiglu", "in": 20},
                  {"name": "down", "kind": "linear", "in": 10, "out": 12, "bias": false}],
       "shared": [{"name": "all", "kind": "linear", "in": 12, "out": 12, "bias": false}]}]})");
}

Json mixtral_shape() {
  Json shape = llama_shape();
  shape["transformer"].update({{"experts", 4},
                               {"top_k", 2},
                               {"normalised", false},
                               {"capacity_factor", 1.25},
                               {"balance_loss", 0.01},
                               {"z_loss", 0.001},
                               {"shared_ffn", 8}});
  return shape;
}

Json latent_model() {
  return parsed(R"({
    "schema": "pipewright.model/1", "name": "latent attention", "loss": "mse", "sequence": 8,
    "layers": [
      {"name": "attention", "kind": "latent_attention", "in": 12, "heads": 3, "rotary_base": 500.0,
       "widths": {"query_rank": 5, "key_value_rank": 4, "plain": 3, "rotary": 2, "value": 6}},
      {"name": "straight", "kind": "latent_attention", "in": 12, "heads": 2, "rotary_base": 10000.0,
       "widths": {"key_value_rank": 4, "plain": 3, "rotary": 2, "value": 6}}]})");
}

Json deepseek_shape() {
  Json shape = mixtral_shape();
  shape["transformer"].erase("kv_heads");
  shape["transformer"].update(
      {{"latent_attention",
        {{"query_rank", 5}, {"key_value_rank", 4}, {"plain", 3}, {"rotary", 2}, {"value", 6}}},
       {"dense_layers", 1},
       {"dense_ffn", 40}});
  return shape;
}

Json image_model() {
  return parsed(R"({
    "schema": "pipewright.model/1", "name": "images", "loss": "softmax_cross_entropy",
    "layers": [
      {"name": "stem", "kind": "conv2d", "image": [3, 8, 8], "channels": 4, "kernel": 3,
       "stride": 1, "padding": 1, "groups": 1, "bias": false},
      {"name": "residual", "kind": "residual",
       "layers": [{"name": "down", "kind": "max_pool", "image": [4, 8, 8], "kernel": 2,
                   "stride": 2, "padding": 0}],
       "shortcut": [{"name": "mean", "kind": "average_pool", "image": [4, 8, 8], "kernel": 3,
                     "stride": 2, "padding": 1}]},
      {"name": "norm", "kind": "batch_norm", "image": [4, 4, 4]},
      {"name": "relu", "kind": "relu", "in": 64},
      {"name": "pool", "kind": "global_average_pool", "image": [4, 4, 4]},
      {"name": "classes", "kind": "linear", "in": 4, "out": 7, "bias": true}]})");
}

Json graph_model() {
  return parsed(R"({
    "schema": "pipewright.model/1", "name": "graph", "loss": "mse",
    "layers": [
      {"name": "own", "kind": "custom", "type": "mine", "in": 6, "out": 8,
       "settings": {"slope": "1.5"}, "weights": 6, "operations": 48.5, "kept": 20, "held": 12},
      {"name": "left", "kind": "relu", "in": 8},
      {"name": "right", "kind": "linear", "in": 8, "out": 8, "bias": true, "inputs": ["own"]},
      {"name": "sum", "kind": "add", "inputs": ["left", "right"]},
      {"name": "inner", "kind": "graph", "layers": [
        {"name": "a", "kind": "gelu", "in": 8, "inputs": ["input"]},
        {"name": "both", "kind": "concat", "inputs": ["a", "input"]}]}]})");
}

Json cluster() {
  return parsed(R"({
    "schema": "pipewright.cluster/1", "name": "two nodes", "nodes": 2, "devices_per_node": 2,
    "device": {"kind": "cuda", "model": "some GPU", "memory_bytes": 1073741824, "peak_flops": 1e12},
    "inside": {"latency_ns": 1000, "bytes_per_second": 1e9, "sharing": "fair"},
    "across": {"latency_ns": 2000, "bytes_per_second": 5e8, "sharing": "serial"}})");
}

Json job() {
  return parsed(R"({
    "schema": "pipewright.job/1", "model": "gpt-tiny",
    "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 16,
    "strategy": {"pp_degree": [1, 2], "vpp_degree": 1, "accumulate_steps": "auto",
                 "micro_batch_size": [1, 2, 4], "schedule_mode": ["1f1b", "gpipe"],
                 "comm_policy": {"preset": "torch", "issue": "stream", "channel": "pair",
                                 "post": "deferred", "run_order": "even-odd",
                                 "send_f": "eager:1", "send_b": "eager:4095B"},
                 "memory_limit": 1073741824, "stage_replicas": [[2, 1], [1, 1]]},
    "auto_mode": "semi", "tuner_load_path": "/tmp/in.json", "tuner_save_path": "/tmp/out.json",
    "tuner_run_mode": "tuner_only", "profile_path": "/tmp/profile.json",
    "training": {"optimizer": "sgd", "learning_rate": 0.5, "steps": 3, "seed": 7,
                 "data": "/tmp/data.txt", "recompute": "selective",
                 "clip_grad_norm": 1.5}})");
}

Json annotated_graph() {
  return parsed(R"({
    "schema": "pipewright.graph/1",
    "meshes": {"left": {"shape": [2, 2], "dim_names": ["dp", "tp"], "ranks": [0, 1, 2, 3]},
               "right": {"shape": [2], "ranks": [4, 5]}},
    "tensors": {
      "x": {"shape": [4, 6], "type": "float32",
            "annotation": {"mesh": "left", "placements": ["S0", "R"]}},
      "w": {"shape": [6, 8], "type": "bf16",
            "annotation": {"mesh": "left", "dims_mapping": [-1, 1], "chunk_id": 1}},
      "h": {"shape": [4, 8], "type": "float32"},
      "a": {"shape": [4, 8], "type": "float32",
            "annotation": {"mesh": "right", "dims_mapping": [-1, -1], "partial": {"0": "sum"}}},
      "b": {"shape": [4, 4], "type": "float32"}, "c": {"shape": [4, 4], "type": "float32"},
      "d": {"shape": [4, 8], "type": "float32"}},
    "operators": [
      {"name": "product", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["h"],
       "attributes": [false, false],
       "annotation": {"process_mesh": "left", "impl_type": "matmul_v2", "impl_idx": 0,
                      "inputs": [{"dims_mapping": [0, -1]}, null],
                      "outputs": [{"dims_mapping": [0, 1]}], "chunk_id": 1}},
      {"name": "scale", "rule": "scale", "inputs": ["h"], "outputs": ["a"]},
      {"name": "split", "rule": "split", "inputs": ["a"], "outputs": [["b", "c"]],
       "attributes": [[4, 4], 1], "annotation": {"process_mesh": "right"}},
      {"name": "concat", "rule": "concat", "inputs": [["b", "c"]], "outputs": ["d"],
       "attributes": [1]}]})");
}

Json paddle_job() {
  return parsed(R"({
    "schema": "pipewright.job/1",
    "model": {"transformer": {"hidden": 8, "layers": 2, "heads": 2, "ffn": 16, "vocabulary": 32,
                              "sequence": 4}, "name": "small", "bytes_per_element": 4},
    "training": {"data": {"inputs": "/tmp/x.npy", "labels": "/tmp/y.npy"}},
    "cluster": "dgx-a100", "global_batch": 8,
    "strategy": {"dp_degree": 1, "mp_degree": 1, "sharding_degree": 1,
                 "pipeline": {"enable": true, "pp_degree": 2, "accumulate_steps": 4,
                              "micro_batch_size": 2, "schedule_mode": "VPP", "vpp_degree": 2,
                              "stage_replicas": "auto",
                              "enable_send_recv_overlap": true}}})");
}

Json estimated_job() {
  return parsed(R"({
    "schema": "pipewright.job/1", "model": "mixtral-8x7b", "cluster": "dgx-h100",
    "global_batch": 64,
    "measured_steps": [{"configuration": "tp=8", "step_ns": 3100000000, "peak_bytes": 61000000000},
                       {"configuration": "tp=4", "out_of_memory": true}],
    "strategy": {"mp_degree": [1, 2, 4], "cp_degree": 1, "ep_degree": "auto",
                 "sharding_stage": [0, 1], "use_sequence_parallel": true,
                 "recompute": ["none", "by_stage"], "overlap_grad_reduce": true,
                 "rank_order": ["tp-cp-dp-pp", "tp-cp-pp-dp"], "framework": "megatron-lm",
                 "grad_accum_dtype": "bfloat16", "matmul_dtype": "fp8", "node_order": "file"}})");
}

Json own_framework() {
  return parsed(R"({
    "schema": "pipewright.framework/1", "name": "ours", "like": "megatron-deepspeed",
    "sources": "counted", "launch_seconds": 2e-5, "blocking_launches": true, "forward_kernels": 21, "backward_kernels": 45,
    "attention_core_kernels": 3, "embedding_kernels": 12, "head_kernels": 30,
    "graphs_steps": true, "graphs_routing": true, "groups_experts": true, "sends_tokens_once": true, "routes_in_turn": true, "selects_operators": true, "keeps_queries": true, "keeps_mixed": true, "skips_last_product": true, "hides_expert_messages": true, "fused_kernels": true, "flash_attention": true, "flash_rate": 0.5, "dropout": false,
    "fused_loss": true, "keeps_weight_buffers": true, "pads_vocabulary": false,
    "loss_bytes_per_logit": 20.0, "product_bytes": 1.0, "gradient_bytes": 4.0, "tied_gradient_bytes": 4.0,
    "accumulate_bytes": 8.0, "fuses_accumulation": true, "converts_gradients": true, "scatters_once": true, "keeps_gathered": true, "divides_sequence": false, "interleaves": false, "gather_bytes": 4.0, "gathers_tensors": true, "keeps_received": true, "part_seconds": 0.00001, "loss_kept_bytes": 10.0, "divided_loss_kept_bytes": 16.0, "reduction_bytes": 28.0, "optimizer_bytes": 62.0,
    "step_overhead_seconds": 0.001, "waits_for_messages": true, "sends_mask": true,
    "gathers_activations": true, "sends_whole_gradients": true})");
}

std::vector<Cell> cells(std::initializer_list<const char*> texts) {
  std::vector<Cell> result;
  for (const char* text : texts) {
    result.push_back(parse_cell(text).value());
  }
  return result;
}

}  // namespace

Plan sample_plan() {
  Plan plan;
  plan.model = model_preset("gpt-tiny");
  plan.cluster = cluster_preset("local-cpu", 2);
  plan.mesh = Mesh::pipeline(2);
  plan.micro_batches = 2;
  plan.micro_batch_size = 4;
  plan.stages = {{0, 3, RankId(0)}, {3, 6, RankId(1)}};
  plan.schedule.name = "1f1b";
  plan.schedule.parameters = {{"group", "2"}};
  Order order;
  order.micro_batches = 2;
  order.placement = Placement::explicit_stages({RankId(0), RankId(1)}, 2);
  order.ranks = {cells({"0F0", "0F1", "0B0", "0I1", "0W1"}), cells({"1F0", "1B0", "1F1", "1B1"})};
  plan.schedule.order = order;
  plan.policy = comm_policy_preset("paddle-vpp");
  const StageCosts costs{Nanoseconds(100), Nanoseconds(110), Nanoseconds(90), Nanoseconds(200),
                         Nanoseconds(5)};
  plan.costs = CostTable::uniform(2, costs, Nanoseconds(7));
  plan.costs.memory.assign(2, {Bytes(64), Bytes(-24), Bytes(-40), Bytes(1000)});
  plan.costs.activation_bytes = {Bytes(4096)};
  plan.costs.gradient_bytes = {Bytes(4096)};
  plan.costs.overlapped_pair = Nanoseconds(250);
  plan.costs.links = {{"wire", 1e9, Sharing::Fair}};
  plan.costs.every_route.bytes_per_second = 2e9;
  plan.costs.every_route.links = {0};
  plan.costs.route_of_edge.assign(4, plan.costs.every_route);
  plan.costs.route_of_edge[1] = {Nanoseconds(9), 1e9, {0}};
  plan.costs.source = "a test";
  plan.predicted = {Nanoseconds(1200), 0.25, {2, 1}, {Bytes(1128), Bytes(1064)}};
  plan.executable = {{"cpu", {}}, {"cuda", {Executable::Answer::No, "no module for it"}}};
  plan.training.data = "/tmp/x.npy";
  plan.training.targets = "/tmp/t.npy";
  plan.training.clip_grad_norm = 0.25;
  plan.training.recompute = {RecomputeSpec::Kind::Listed, {0}, {1}};
  plan.tuner.seed = 18446744073709551615U;
  plan.tuner.evaluated = 12;
  plan.tuner.pruned = {{"over memory", 3}};
  plan.tuner.reasons = {"it is the fastest", "it fits"};
  plan.tuner.baseline_step = Nanoseconds(2400);
  return plan;
}

Profile sample_profile() {
  Profile profile;
  profile.model_name = "mlp";
  profile.cluster = cluster_preset("dgx-a100");
  profile.ranks_measured = 2;
  profile.repeats = 5;
  for (const int size : {1, 4}) {
    ProfileSize one;
    one.micro_batch_size = size;
    const Nanoseconds t(1000 * size);
    one.layers.assign(3, {t, t, t, Nanoseconds(10)});
    one.layers[1].saved_by_b = Nanoseconds(50 * size);
    one.spreads.assign(3, {.f = distribution_of({900 * size, 1000 * size, 1300 * size}),
                           .i = distribution_of({1000 * size}),
                           .w = {},
                           .opt = {},
                           .b = distribution_of({1800 * size, 1950 * size})});
    one.f_ns_per_message_byte = 0.25;
    one.i_ns_per_message_byte = 0.5;
    one.loss = {Nanoseconds(50), Nanoseconds(60), Nanoseconds(0), Nanoseconds(0)};
    profile.sizes.push_back(one);
  }
  profile.length = 64;
  for (const int length : {16, 256}) {
    ProfileLength other{length, {profile.sizes.back()}};
    for (LayerTimes& layer : other.sizes[0].layers) layer.f = Nanoseconds(100) * length;
    other.sizes[0].loss = {};
    profile.lengths.push_back(std::move(other));
  }
  DividedProfile halves{.ranks = {2, 1}, .ranks_measured = 4, .sizes = profile.sizes};
  for (ProfileSize& size : halves.sizes) {
    for (LayerTimes& layer : size.layers) layer.f = Nanoseconds(600) * size.micro_batch_size;
    size.loss = {};
  }
  profile.divided.push_back(std::move(halves));
  profile.transfer_latency = Nanoseconds(800);
  profile.transfer_bytes_per_second = 6.5e9;
  profile.transfer_issue = Nanoseconds(90);
  profile.action_overhead = Nanoseconds(300);
  profile.step_overhead = Nanoseconds(4000);
  return profile;
}

Plan plan_with_parts() {
  Plan plan = sample_plan();
  plan.cluster = cluster_preset("local-cpu", 8);
  plan.mesh = Mesh::grid(2, 2, 1, 2);
  plan.expert_parallel = 2;
  const std::string fault =
      add_parts("1F", {"attention*3", "ALL_REDUCE(tp:a:4x8:bfloat16)*2", "ALL_TO_ALL(ep:b)", "mlp"},
                plan.parts);
  if (!fault.empty()) throw std::logic_error(fault);
  return plan;
}

std::vector<Sample> sample_documents() {
  return {
      {"model", "layers", layer_model()},
      {"model", "llama layers", llama_model()},
      {"model", "llama shape", llama_shape()},
      {"model", "experts layer by layer", mixture_model()},
      {"model", "mixtral shape", mixtral_shape()},
      {"model", "latent attention layer by layer", latent_model()},
      {"model", "deepseek shape", deepseek_shape()},
      {"model", "images", image_model()},
      {"model", "graph", graph_model()},
      {"model", "transformer", to_json(model_preset("gpt3-175b"))},
      {"model", "preset",
       parsed(R"({"schema": "pipewright.model/1", "name": "mine", "preset": "mlp",
                      "bytes_per_element": 2})")},
      {"cluster", "full", cluster()},
      {"cluster", "preset",
       parsed(R"({"schema": "pipewright.cluster/1", "name": "mine", "preset": "dgx-h100",
                      "devices": 16})")},
      {"cluster", "collectives",
       parsed(R"({"schema": "pipewright.cluster/1", "name": "mine", "preset": "dgx-a100",
                      "devices": 16, "collectives": {
                        "source": "measured", "launch_ns": 5000, "step_ns": 1800,
                        "part_ns_per_byte": 0.4, "bulk_ns": 42000, "bytes_per_second": 2e11,
                        "across": {"step_ns": 9000, "bytes_per_second": 1e11}}})")},
      {"cluster", "network",
       parsed(R"({"schema": "pipewright.cluster/1", "name": "mine", "preset": "dgx-h100",
                      "devices": 128, "network": {
                        "kind": "fat-tree", "rails": 8, "between_rails": "switches",
                        "routing": "flow", "levels": [
                          {"joins": 4, "oversubscription": 2, "latency_ns": 500},
                          {"joins": 2, "uplinks": 4, "bytes_per_second": 1e11}, {"joins": 2}]}})")},
      {"cluster", "cables", parsed(R"({"schema": "pipewright.cluster/1", "name": "mine", "nodes": 2,
                      "devices_per_node": 2, "network_ports": 1,
                      "device": {"kind": "cuda", "model": "GPU", "memory_bytes": 1000,
                                 "peak_flops": 3e14},
                      "inside": {"latency_ns": 1, "bytes_per_second": 2e11},
                      "across": {"latency_ns": 2, "bytes_per_second": 2e10, "sharing": "max-min"},
                      "network": {"kind": "cables", "cables": [
                        {"from": "node 0 port 0", "to": "leaf", "bytes_per_second": 2e10},
                        {"from": "leaf", "to": "node 1 port 0", "count": 2,
                         "bytes_per_second": 1e10, "latency_ns": 100}]}})")},
      {"cluster", "kinds",
       parsed(R"({"schema": "pipewright.cluster/1", "name": "mixed", "devices_per_node": 8,
                      "network_ports": 4, "node_kinds": [
                        {"nodes": 2, "preset": "dgx-v100"},
                        {"nodes": 1, "device": {"kind": "cuda", "model": "A100",
                                                "memory_bytes": 1000, "peak_flops": 3e14},
                         "inside": {"latency_ns": 1, "bytes_per_second": 2e11},
                         "across": {"latency_ns": 2, "bytes_per_second": 2e10}}]})")},
      {"profile", "full", to_json(sample_profile())},
      {"plan", "full", to_json(sample_plan())},
      {"plan", "parts", to_json(plan_with_parts())},
      {"order", "replicas", parsed(R"({"schema": "pipewright.order/1",
                      "ranks": [["0F0", "", "(1F1;0B0)OVERLAP_F_B", "1B1", "0REDUCE_GRAD"],
                                ["1F0", "0F1", "1I0", "1W0", "0B1", "0REDUCE_GRAD"]],
                      "rank_of_stage": [[0, 1], [1, 0]]})")},
      {"order", "transfers", parsed(R"({"schema": "pipewright.order/1",
                      "ranks": [["0F0", "0SEND_F0", "0RECV_B0", "0B0"],
                                ["1RECV_F0", "1F0", "1B0", "1SEND_B0", "OPT"]],
                      "rank_of_stage": [0, 1]})")},
      {"order", "fragment", parsed(R"({"schema": "pipewright.order/1", "fragment": true,
                      "ranks": [["0F1", "(0SEND_F1;0RECV_B0)BATCH_P2P", "0B0"],
                                ["(1SEND_B0;1RECV_F1)BATCH_P2P", "1F1"]],
                      "rank_of_stage": [0, 1]})")},
      {"architecture", "preset",
       parsed(R"({"schema": "pipewright.architecture/1", "name": "mine", "preset": "llama3-8b",
                      "layers": 16, "sequence": 4096, "sample_tokens": 64,
                      "lora": {"rank": 8, "target_modules": ["q_proj", "v_proj"]}})")},
      {"architecture", "full", to_json(architecture_preset("deepseek-v3"))},
      {"framework", "own", own_framework()},
      {"graph", "annotated", annotated_graph()},
      {"job", "flat", job()},
      {"job", "paddle", paddle_job()},
      {"job", "estimated", estimated_job()}};
}

Json rewritten(const std::string& kind, const Json& document) {
  const JsonCursor cursor(document, "sample.json");
  if (kind == "model") {
    return to_json(read_model(cursor));
  }
  if (kind == "cluster") {
    return to_json(read_cluster(cursor));
  }
  if (kind == "profile") {
    return to_json(read_profile(cursor));
  }
  if (kind == "plan") {
    return to_json(read_plan(cursor));
  }
  if (kind == "order") {
    return to_json(read_order_json(cursor));
  }
  if (kind == "job") {
    return to_json(read_job(cursor));
  }
  if (kind == "architecture") {
    return to_json(read_architecture(cursor));
  }
  if (kind == "framework") {
    return to_json(read_framework(cursor));
  }
  if (kind == "graph") {
    return to_json(spmd::read_graph(cursor));
  }
  throw std::logic_error("no such kind of document: " + kind);
}

void read_as(const std::string& kind, const Json& document) { rewritten(kind, document); }

void read_text_as(const std::string& kind, std::string_view text) {
  read_as(kind, parse_json(text, "sample.json"));
}

}  // namespace pipewright::test
