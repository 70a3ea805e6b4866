// Megatron-Bridge's page of measured steps, and what the recipes in the same repository say of
// them.
#include <algorithm>

#include "tests/support/measured/recipes.hpp"

namespace pipewright::test {

namespace {

/// Mixtures in MXFP8 of which a step is one CUDA graph since the container 26.06, one kernel
/// multiplies for all experts, and messages among them are hidden beside another micro-batch
/// (src/megatron/bridge/perf_recipes: _enable_hybridep_full_iteration_mxfp8 and those of DeepSeek's
/// and GPT-OSS's recipes; not Kimi K2's, nor those of B300 but for the smallest model).
bool is_one_graph(const Document& r, const Architecture& model, const std::string& device) {
  return text_of(r, "container") >= "26.06" && products_of(precision_of(r)) == "mxfp8" &&
         model.experts.count > 0 && model.name != "kimi-k2" && model.pattern.empty() &&
         (device.starts_with("GB") || model.name == "qwen3-30b-a3b");
}

/// Qwen3 while its experts dropped what they had no room for: no count of tokens comes back to the
/// host, and the recipes' files have cuda_graph_scope "full_iteration"
/// (scripts/performance/configs/qwen3, with apply_moe_token_drop).
bool is_one_graph_that_drops(const Document& r, const Architecture& model,
                             const std::string& device) {
  if (model.name == "qwen3-30b-a3b") return text_of(r, "container") == "25.09" && device != "H100";
  if (model.name != "qwen3-235b-a22b") return false;
  return text_of(r, "container") == "25.09"
             ? device == "GB200"
             : text_of(r, "container") == "25.11" && device == "GB300" &&
                   !products_of(precision_of(r)).empty();
}

/// DeepSeek-V3 on H100, without drops: enable_deepep and a2a_1f1b, which lays the messages of one
/// micro-batch beside the work of another (scripts/performance/configs/deepseek).
bool overlaps_experts(const Architecture& model, const std::string& device) {
  return model.name == "deepseek-v3" && device == "H100";
}

/// The flex dispatcher with HybridEP, in the recipes since the container 26.02
/// (scripts/performance/configs, later perf_recipes): for Qwen3 235B on B200 and B300 since 26.06,
/// for GPT-OSS on B300 and where a step is one graph.
bool sends_tokens_once(const Document& r, const Architecture& model, const std::string& device) {
  const std::string container = text_of(r, "container");
  if (overlaps_experts(model, device)) return true;
  if (container < "26.02" || model.experts.count == 0) return false;
  if (model.name == "qwen3-235b-a22b") return device.starts_with("GB") || container >= "26.06";
  if (model.name == "gpt-oss-120b") return device == "B300" || is_one_graph(r, model, device);
  return true;
}

/// The recipes' cuda_graph_scope [attn, moe_router, moe_preprocess], of those files.
bool graphs_routing(const Document& r, const MeasuredCase& row, const std::string& device) {
  const std::string container = text_of(r, "container"), &model = row.model.name;
  if (container < "25.11") return false;
  if (model == "nemotron-3-nano") return device != "H100";
  if (model == "nemotron-3-super") return device != "B200";
  if (device == "GB200") return model == "qwen3-235b-a22b" || model == "deepseek-v3";
  if (device == "GB300")
    return model == "qwen3-235b-a22b" ? container >= "26.02"
                                      : model == "deepseek-v3" && row.framework.product_bytes == 2;
  if (device != "B300") return false;
  return model == "deepseek-v3" ? container >= "26.04"
                                : model == "gpt-oss-120b" && container >= "26.06";
}

/// What the recipes beside the page say of a model and a system, as far as it is the same in all
/// versions (NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs, later perf_recipes).
void set_recipe(const Document& r, MeasuredCase& row, const std::string& device) {
  FrameworkTraits& framework = row.framework;
  const std::string& model = row.model.name;
  if (model == "gpt-oss-120b") {
    framework.recomputes_norms = framework.recomputes_activations = !device.ends_with("B300");
  } else if (model == "deepseek-v3") {
    const bool is_wide = framework.product_bytes == 2;
    framework.recomputes_activations = device == "GB300" && is_wide;
    framework.recomputes_projections =
        device != "GB300" || !(is_wide || is_one_graph(r, row.model, device));
    framework.state_bytes = 6;  // moments of 16 bits
  } else if (model == "nemotron-3-nano") {
    framework.recomputes_norms = device == "H100";
    framework.state_bytes = 12;
  } else if (model == "nemotron-3-super") {
    framework.recomputes_norms = framework.recomputes_activations =
        device == "B200" || (device == "B300" && framework.product_bytes < 1);
    framework.state_bytes = 12;
  } else if (model == "kimi-k2") {
    framework.recomputes_projections = true;
  } else if (model == "llama3-70b" && device.starts_with("GB")) {
    framework.offloaded_blocks = device == "GB200" ? 40 : 20;  // of its FSDP in 8 bits
  } else if (model == "llama3-405b" && row.setup.zero == 3) {
    framework.offloaded_blocks = 95;
  }
  if (row.model.experts.count > 0) row.setup.expert_tensor_degree = 1;
  framework.graphs_routing = graphs_routing(r, row, device);
  framework.sends_tokens_once = sends_tokens_once(r, row.model, device);
  framework.hides_expert_messages = overlaps_experts(row.model, device);
  framework.graphs_steps = is_one_graph_that_drops(r, row.model, device);
  if (!is_one_graph(r, row.model, device)) return;
  framework.graphs_steps = framework.groups_experts = framework.hides_expert_messages = true;
}

/// As the recipes' files have it (mtp_num_layers), and the page names the exceptions.
int further_tokens_of(const Document& r) {
  const std::string model = text_of(r, "model");
  if (model.starts_with("DeepSeekV3")) return model.find("w/o MTP") == std::string::npos ? 1 : 0;
  return model.starts_with("Nemotron_3_Super") || model.starts_with("Nemotron_3_5") ? 2 : 0;
}

/// DeepSeek-V3's layouts count loss, block for a further token and one more as blocks of the last
/// stage (set_deepseek_v3_pipeline_model_parallel_layout: "Et*4|(t*4|)*14tmL" for 16 stages).
void lay_out_deepseek(MeasuredCase& row) {
  const int pipeline = row.setup.pipeline;
  if (pipeline == 1 || 64 % (pipeline * row.setup.chunks) != 0) return;
  row.setup.blocks_of_rank.assign(static_cast<std::size_t>(pipeline), 64 / pipeline);
  row.setup.blocks_of_rank.back() -= 3;
}

}  // namespace

std::optional<MeasuredCase> bridge_case(MeasuredTable& table, const Document& r) {
  const std::string system = text_of(r, "system");
  const std::string device = system.substr(system.find('-') + 1);
  auto row = recipe_case(table, r, device, "step_s_derived");
  if (!row) return row;
  // What is accumulated was printed for both figures of a cell, the micro-batch once.
  if (const int accumulated = number_or(r, "ga", 0); accumulated > 0) {
    row->setup.micro_batch_size =
        std::max(1, r.at("gbs").get<int>() / (row->setup.data * accumulated));
    row->setup.micro_batches = accumulated;
  }
  // The first versions of the page say whether (FSDP = 1), later ones among how many.
  if (number_or(r, "fsdp", 0) > 0) row->setup.zero = 3;
  row->model.further_tokens = further_tokens_of(r);
  if (row->model.name == "deepseek-v3") lay_out_deepseek(*row);
  set_recipe(r, *row, device);
  if (const std::string task = text_of(r, "task"); task == "lora" || task == "peft")
    adapt_as_megatron(*row);
  return row;
}

}  // namespace pipewright::test
