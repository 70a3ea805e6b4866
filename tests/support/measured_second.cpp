// The second collection, golden/measured2/: steps of NVIDIA's recipes, BLOOM's trials, MosaicML's
// FSDP runs. Nothing is fitted to it. Rows are told by the software that ran them, as the public
// commands can be; one that the estimate cannot be asked is left out with the reason.
#include <algorithm>
#include <optional>

#include "tests/support/measured_rows.hpp"

namespace pipewright::test {

namespace {

using planner::ParallelSetup;
using Document = nlohmann::json;

/// A number of a row, or what stands for one that is missing or null.
int number_or(const Document& row, const char* name, int otherwise) {
  const auto found = row.find(name);
  return found == row.end() || found->is_null() ? otherwise : found->get<int>();
}

std::string text_of(const Document& row, const char* name) {
  const auto found = row.find(name);
  return found == row.end() || found->is_null() ? "" : found->get<std::string>();
}

/// Degrees, batch and recompute of a row; data parallel ranks are the devices that are left.
ParallelSetup setup_of(const Document& row) {
  ParallelSetup setup;
  setup.tensor = number_or(row, "tp", 1);
  setup.pipeline = number_or(row, "pp", 1);
  setup.context = number_or(row, "cp", 1);
  setup.experts = number_or(row, "ep", 1);
  setup.expert_tensor_degree = number_or(row, "etp", 0);
  setup.chunks = std::max(number_or(row, "vp", 1), number_or(row, "vpp", 1));
  setup.data = row.at("gpus").get<int>() / (setup.tensor * setup.pipeline * setup.context);
  setup.micro_batch_size = number_or(row, "mbs", 1);
  setup.micro_batches =
      row.at("gbs").get<int>() / (std::max(1, setup.data) * setup.micro_batch_size);
  const std::string recompute = text_of(row, "recompute");
  if (recompute == "full") setup.recompute.of_all = LayerRecompute::Whole;
  return setup;
}

/// Whether devices and batch come out whole with the row's degrees.
bool agrees(const Document& row, const ParallelSetup& setup) {
  return setup.devices() == row.at("gpus").get<int>() &&
         setup.data * setup.micro_batch_size * setup.micro_batches == row.at("gbs").get<int>();
}

/// Counts a row that the estimate cannot be asked for.
std::nullopt_t without(MeasuredTable& table, const char* reason) {
  ++table.left_out[reason];
  return std::nullopt;
}

/// Adds a row, or counts why the estimate cannot be asked for it.
void add(MeasuredTable& table, MeasuredCase row, const Document& of) {
  const ParallelSetup& setup = row.setup;
  if (!agrees(of, setup)) {
    ++table.left_out["devices, batch and degrees disagree"];
  } else if (const auto refused = planner::refusal(row.model, row.machine, setup)) {
    ++table.left_out["refused: " + refused->sentence];
  } else {
    row.name = row.model.name + " l" + std::to_string(row.model.blocks) + " on " +
               std::to_string(setup.devices()) + " " + degrees_text(setup) +
               (row.framework.product_bytes < 2
                    ? " " + std::string(product_format(row.framework.product_bytes)->name)
                    : "");
    table.cases.push_back(std::move(row));
  }
}

/// A GPT without biases, its positions added to the scores, as MPT (mosaicml/llm-foundry).
Architecture mpt(const Document& row) {
  Architecture model = gpt_architecture(row.at("model"), row.at("hidden"), row.at("layers"),
                                        row.at("heads"), 50368, row.at("seq"));
  model.biases = model.learned_positions = false;
  return model;
}

Architecture gpt_like(std::string name, int hidden, int blocks, int heads, int key_value_heads,
                      int ffn, int vocabulary) {
  Architecture model = gpt_architecture(std::move(name), hidden, blocks, heads, vocabulary, 4096);
  model.key_value_heads = key_value_heads;
  model.ffn = ffn;
  model.biases = model.learned_positions = model.tied_head = false;
  return model;
}

/// Widths as the files' "architectures" have them, and of the models' own pages.
std::optional<Architecture> recipe_model(const std::string& name) {
  if (name.starts_with("llama3.1-405b") || name == "LLAMA3.1_405B") {
    Architecture model = architecture_preset("llama3-405b");
    model.key_value_heads = 16;
    return model;
  }
  if (name.starts_with("llama3.1-70b") || name == "LLAMA3_70B" || name.starts_with("Llama3 70B") ||
      name == "llama3 finetune-70b")
    return architecture_preset("llama3-70b");
  if (name.starts_with("llama3.1-8b") || name == "LLAMA3_8B" || name == "Llama3 8B" ||
      name == "llama3 finetune-8b")
    return architecture_preset("llama3-8b");
  if (name.starts_with("Qwen2.5 32B")) {  // its own page: Qwen/Qwen2.5-32B, config.json
    Architecture model = gpt_like(name, 5120, 64, 40, 8, 27648, 152064);
    model.gated = true;
    return model;
  }
  if (name.starts_with("gpt3-175b")) return architecture_preset("gpt3-175b");
  if (name.starts_with("deepseek_v3") || name.starts_with("DeepSeek V3") ||
      name.starts_with("DeepSeekV3")) {
    return architecture_preset("deepseek-v3");
  }
  if (name.starts_with("nemotron-340b")) return gpt_like(name, 18432, 96, 96, 8, 73728, 256000);
  if (name.starts_with("nemotron-15b")) return gpt_like(name, 6144, 32, 48, 8, 24576, 256000);
  if (name.starts_with("grok1")) {
    Architecture model = gpt_like(name, 6144, 64, 48, 8, 32768, 131072);
    model.gated = true;
    model.experts = {.count = 8, .chosen = 2, .ffn = 32768};
    return model;
  }
  if (name.starts_with("Qwen3 MoE 30B") || name.starts_with("Qwen3_30B"))
    return architecture_preset("qwen3-30b-a3b");
  if (name.starts_with("Qwen3_235B")) return architecture_preset("qwen3-235b-a22b");
  if (name.starts_with("Kimi_K2")) return architecture_preset("kimi-k2");
  if (name.starts_with("Nemotron_3_Nano") || name.starts_with("Nemotron_3_5_Lightning"))
    return architecture_preset("nemotron-3-nano");
  if (name.starts_with("Nemotron_3_Super") || name.starts_with("Nemotron V3 Super"))
    return architecture_preset("nemotron-3-super");
  if (name.starts_with("nemotronh-56b")) return architecture_preset("nemotron-h-56b");
  if (name.starts_with("llama4-400b")) return architecture_preset("llama4-maverick");
  if (name.starts_with("GPT OSS 120B") || name.starts_with("GPT-OSS 120B"))
    return architecture_preset("gpt-oss-120b");
  return std::nullopt;
}

/// The product format of a page's "precision": "FP8-CS" scales tensors as they are, "FP8-MX" and
/// "MXFP8" are one.
std::string_view products_of(const std::string& precision) {
  if (precision == "FP8-MX" || precision == "MXFP8") return "mxfp8";
  if (precision == "NVFP4") return "nvfp4";
  return precision.starts_with("FP8") ? "fp8" : "";
}

/// The container 25.09 printed no precision. As its page explains its brackets, both figures of a
/// cell are of 8 bits, those in brackets with finer blocks of a scale; the next container's page
/// has the same sentence and names such pairs FP8-CS and FP8-MX.
std::string precision_of(const Document& row) {
  if (text_of(row, "container") != "25.09") return text_of(row, "precision");
  const bool has_blocks = text_of(row, "variant") == "in brackets";
  return has_blocks && !text_of(row, "system").ends_with("H100") ? "FP8-MX" : "FP8-CS";
}

/// One of NVIDIA's rows on Megatron core or PyTorch's own parallelism; nothing, with the reason
/// counted, for what the estimate does not know.
std::optional<MeasuredCase> recipe_case(MeasuredTable& table, const Document& row,
                                        const std::string& device, const char* seconds) {
  const std::string precision = precision_of(row);
  if (number_or(row, "gbs", 0) == 0 || number_or(row, "mbs", 0) == 0)
    return without(table, "no batch or micro-batch");
  if (row.value("superseded", false)) return without(table, "superseded on its page");
  if (!row.value("note", "").empty()) return without(table, "the row does not agree with itself");
  const std::string name = row.at("model");
  auto model = recipe_model(name);
  if (!model) return without(table, "a model or framework that the estimate does not know");
  MeasuredCase result;
  result.model = *model;
  result.model.sequence = row.at("seq");
  result.model.blocks = number_or(row, "layers", result.model.blocks);
  if (name.starts_with("llama4") && result.model.blocks != model->blocks)
    return without(table, "superseded on its page");  // of later tags with the same step
  result.framework = with_products(nemo(), products_of(precision));
  result.machine = planner::nvlink_machine(device, 400e9);  // eight ports of 400 Gb/s
  if (device.starts_with("GB")) {  // 64 of the 72 devices of a rack, each with its port
    result.machine.devices_per_node = 64;
    result.machine.nodes.front().network_bytes_per_second *= 8;
  }
  result.setup = setup_of(row);
  // The tag v25.04 prints no interleaving here; the tags before and after it print 12.
  if (name.starts_with("nemotron-340b")) result.setup.chunks = 12;
  result.setup.sequence_parallel = result.setup.tensor > 1;
  result.setup.zero = 1;
  result.setup.overlap_gradients = true;
  result.measured = row.at(seconds);
  return result;
}

/// The table of a file. Of each of its rows `case_of(table, row)` makes a case, or counts why not.
template <class CaseOf>
MeasuredTable table_of(const std::filesystem::path& folder, const char* title, const char* file,
                       const char* about, CaseOf case_of) {
  MeasuredTable table;
  table.title = title;
  table.file = file;
  table.about = about;
  const Document document = read_measured(folder / file);
  for (const Document& row : document.at("rows")) {
    if (std::optional<MeasuredCase> one = case_of(table, row)) add(table, *std::move(one), row);
  }
  return table;
}

/// What NCCL reached of a node's four ports of 100 Gb/s, as BigScience measured it ("bus bandwidth"
/// of an all-reduce of 4 GB among 4 nodes, and 16, in bytes per second;
/// bigscience-workshop/bigscience, experiments/bandwidth: all_reduce_bench-a100-n4.txt, 40.5 Gb/s,
/// and README.md, 55.1 Gb/s before the share of 63/64): one ring, which by the file's log went
/// through one port each way. Trainings have four rings or more side by side, on GPUs that lie
/// near different ports.
constexpr double kPorts = 4;
constexpr double kOmniPathOfA100 = kPorts * 5.06e9, kOmniPathOfV100 = kPorts * 6.8e9;
/// And inside a node of four V100: 600 Gb/s, before the share of 3/4, "if this test is run a bit
/// longer".
constexpr double kInsideOfV100 = 56e9;

/// From so many devices on BLOOM's trials hung, by the page, unless each launch blocked until its
/// kernel had ended (train/tr11-176B-ml/chronicles-prequel.md, "dealing with JZ hanging on the
/// large model", and CUDA_LAUNCH_BLOCKING=1 in its scripts).
constexpr int kDevicesThatHung = 320;

std::optional<MeasuredCase> bloom_case(MeasuredTable& table, const Document& r) {
  if (r.find("step_s") == r.end())
    return without(table, "no time: it ran out of memory, or none is told");
  const int hidden = r.at("hidden");
  MeasuredCase row;
  row.model = gpt_architecture("bloom", hidden, r.at("layers"),
                               number_or(r, "heads", hidden % 96 == 0 ? 96 : 64), 250880, 2048);
  row.model.learned_positions = false;
  row.framework = megatron_deepspeed();
  row.machine = planner::nvlink_machine("A100", kOmniPathOfA100);
  row.setup = setup_of(r);
  row.setup.recompute.of_all = LayerRecompute::Whole;
  row.setup.zero = 1;
  row.framework.blocking_launches = row.setup.devices() >= kDevicesThatHung;
  // "bf16, gradients summed in fp32"
  if (text_of(r, "optimizer").starts_with("bf16")) row.framework = with_gradients(row.framework, 4);
  row.measured = r.at("step_s");
  return row;
}

/// DeepSpeedExamples' Megatron-LM v1.1.5, which the page's run of May had: it fuses kernels only
/// where it is asked to (megatron/arguments.py), and the page's script asks for none
/// (experiments/gpt2-meg-ds-3d-old/meg_ds_3d_gpt2_perf_n16.slurm).
FrameworkTraits megatron_deepspeed_of_2020() {
  FrameworkTraits traits = megatron_deepspeed();
  const FrameworkTraits unfused = megatron_deepspeed_timed();
  traits.forward_kernels = unfused.forward_kernels;
  traits.backward_kernels = unfused.backward_kernels;
  traits.attention_core_kernels = unfused.attention_core_kernels;
  traits.fused_kernels = false;
  return traits;
}

std::optional<MeasuredCase> v100_case(MeasuredTable& table, const Document& r) {
  if (r.find("layers") == r.end()) return without(table, "no layers or widths");
  if (r.find("note") != r.end()) return without(table, "the row does not agree with itself");
  MeasuredCase row;
  row.model = gpt_architecture("gpt", r.at("hidden"), r.at("layers"), 32, 50257, 1024);
  // In fp16, whose gradients Megatron-LM sums in 16 bits (only bf16 asks for fp32;
  // megatron/arguments.py).
  if (text_of(r, "framework").starts_with("Megatron-LM"))
    row.framework = with_gradients(megatron_lm_of_2021(), 2);
  else if (text_of(r, "date").starts_with("2021-05"))
    row.framework = megatron_deepspeed_of_2020();
  else
    row.framework = megatron_deepspeed();
  row.machine = planner::nvlink_machine("V100", kOmniPathOfV100);
  row.machine.devices_per_node = 4;
  row.machine.nodes.front().inside_bytes_per_second = kInsideOfV100;
  if (text_of(r, "device").starts_with("V100 16GB"))
    row.machine.nodes.front().device.memory_bytes /= 2;
  row.setup = setup_of(r);
  row.setup.recompute.of_all = LayerRecompute::Whole;
  // The page's runs of DeepSpeed with replicas: "zero_stage:1", "DS_ZeRO Stage 1".
  if (row.framework.name == megatron_deepspeed().name && row.setup.data > 1) row.setup.zero = 1;
  row.measured = r.at("step_s");
  return row;
}

std::optional<MeasuredCase> fsdp_case(MeasuredTable& /*table*/, const Document& r) {
  const std::string device = r.at("device");
  MeasuredCase row;
  row.model = mpt(r);
  row.framework = with_products(llm_foundry(), r.at("precision") == "amp_fp8" ? "fp8" : "");
  const bool hopper = device.starts_with("h100");
  const char* name = hopper ? "H100" : device == "a100_40gb" ? "A100-SXM4-40GB" : "A100";
  row.machine = planner::nvlink_machine(name, hopper ? 400e9 : 200e9);
  row.setup = setup_of(r);
  row.setup.zero = r.at("sharding") == "FULL_SHARD" ? 3 : 2;
  row.setup.overlap_gradients = true;
  row.measured = r.at("step_s_derived");
  return row;
}

/// Devices that divide weights and state, as the recipes' files have them: from 64 nodes on 16 of
/// MaxText's (maxtext/configure.sh); of PaxML 16 nodes, or one for the small model
/// (paxml/configure.sh).
int jax_shards(const std::string& model, int devices) {
  if (model == "paxml-5b") return 8;
  return model == "paxml-175b" || devices >= 512 ? 128 : devices;
}

/// A row of JAX's frameworks. PaxML's policies, of the same folder: SAVE_QKV_OUT_PROJ, and of the
/// small model SAVE_DOT_ONLY, which computes attention and what is no product again. Layers are
/// rounds of a loop, and what one exchanges lies beside another only where XLA unrolls two
/// (xla_gpu_enable_while_loop_double_buffering: on for MaxText, off for PaxML).
std::optional<MeasuredCase> jax_case(MeasuredTable& table, const Document& r) {
  const std::string name = text_of(r, "model");
  if (number_or(r, "gbs", 0) == 0) return without(table, "no batch or micro-batch");
  MeasuredCase result;
  result.framework = maxtext();
  result.setup = setup_of(r);
  result.setup.recompute.of_all = LayerRecompute::Whole;
  if (name == "paxml-5b") {
    result.model = gpt_architecture(name, 4096, 24, 32, 51200, 2048);
    result.setup.recompute.of_all = LayerRecompute::Attention;
    result.framework.recomputes_norms = true;
  } else if (name == "paxml-175b") {
    result.model = architecture_preset("gpt3-175b");
    result.framework.keeps_mixed = true;
  } else {
    const bool second = text_of(r, "title").find("LLama2") != std::string::npos;
    result.model = architecture_preset("llama3-70b");
    if (second) result.model.vocabulary = 32000;
  }
  result.model.sequence = r.at("seq");
  result.framework = with_products(result.framework, products_of(text_of(r, "precision")));
  result.machine = planner::nvlink_machine(text_of(r, "device"), 400e9);
  result.setup.zero = 3;
  result.setup.shards = jax_shards(name, result.setup.data);
  result.setup.overlap_gradients = name.starts_with("maxtext");
  result.measured = r.at("step_s");
  return result;
}

std::optional<MeasuredCase> dgxc_case(MeasuredTable& table, const Document& r) {
  if (text_of(r, "model").starts_with("maxtext") || text_of(r, "model").starts_with("paxml"))
    return jax_case(table, r);
  auto row = recipe_case(table, r, text_of(r, "device"), "step_s");
  if (!row || r.at("model").get<std::string>().find("finetune") == std::string::npos) return row;
  adapt_as_megatron(*row);
  row->setup.zero = 0;  // use_distributed_optimizer = False with LoRA (NeMo, llm/recipes)
  return row;
}

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

std::optional<MeasuredCase> automodel_case(MeasuredTable& table, const Document& r) {
  auto row = recipe_case(table, r, "H100", "step_s");
  if (!row) return row;
  // In a pipeline gradients wait for the last micro-batch (defer_fsdp_grad_sync, its default) and
  // weights stay whole for the step: what ZeRO 1 exchanges.
  row->setup.zero = row->setup.pipeline > 1 ? 1 : 3;
  // One kernel multiplies for all experts (nemo_automodel/components/moe, GroupedExpertsDeepEP),
  // and what is computed again ends with the last tensor that was saved (torch.utils.checkpoint,
  // set_checkpoint_early_stop).
  row->framework.groups_experts = row->framework.skips_last_product = true;
  // fake_balanced_gate, of the same files (FakeBalancedGate: arange(tokens * chosen) % experts).
  row->framework.routes_in_turn = true;
  row->framework.sends_tokens_once = text_of(r, "kernels").find("DeepEP") != std::string::npos;
  // FlexAttention against FlashAttention-2: 0.90 forward, 0.85 backward (PyTorch's blog,
  // "FlexAttention: The Flexibility of PyTorch with the Performance of FlashAttention").
  if (text_of(r, "kernels").find("FlexAttn") != std::string::npos) row->framework.flash_rate = 0.87;
  // The rows' files (NVIDIA-NeMo/Automodel, examples/benchmark/configs): activation_checkpointing,
  // but not of GPT-OSS, whose ep_size is 64.
  if (text_of(r, "task") == "lora") {
    adapt_as_automodel(*row, number_or(r, "fsdp", 0), text_of(r, "kernels"));
  } else if (row->model.name == "gpt-oss-120b") {
    row->setup.experts = 64;
  } else {
    row->setup.recompute.of_all = LayerRecompute::Whole;
  }
  return row;
}

/// Of a row that does not tell its micro-batch: every power of two that a replica's samples allow.
std::vector<ParallelSetup> with_sizes_of(const MeasuredCase& row, int samples) {
  std::vector<ParallelSetup> all;
  for (int size = 1; size <= samples && samples % size == 0; size *= 2) {
    all.push_back(row.setup);
    all.back().micro_batch_size = size;
    all.back().micro_batches = samples / size;
  }
  return all;
}

/// The page has TFLOP/s, by NeMo's formula of that time, whose attention counts all of a square
/// (NVIDIA/NeMo, nemo/utils/flops_formulas.py, llama2, before causal_self_attn).
std::optional<MeasuredCase> long_sequence_case(MeasuredTable& table, const Document& r) {
  MeasuredCase result;
  result.setup = setup_of(r);
  if (result.setup.data != r.at("dp"))  // of Llama 3 8B on B200
    return without(table, "devices, batch and degrees disagree");
  result.model = architecture_preset("llama3-8b");
  result.model.name = "llama2-7b";
  result.model.key_value_heads = result.model.heads;
  result.model.ffn = 11008;
  result.model.vocabulary = 32000;
  const double sequence = r.at("seq"), batch = r.at("gbs"), hidden = result.model.hidden;
  result.model.sequence = r.at("seq");
  const double each = result.model.blocks * hidden * hidden *
                          (24 + 18 * result.model.ffn / hidden + 12 * sequence / hidden) +
                      6 * hidden * result.model.vocabulary;
  result.measured = batch * sequence * each /
                    (r.at("tflops_gpu").get<double>() * 1e12 * r.at("gpus").get<double>());
  result.framework = with_products(nemo(), products_of(text_of(r, "precision")));
  // Transformer Engine of the container 24.03.01 had FlashAttention-2 alone for divided sequences
  // (transformer_engine/pytorch/attention.py, FlashAttnUnpaddedFuncWithCP).
  result.framework.flash_rate = kFlashAttention2;
  result.machine = planner::nvlink_machine("H100", 400e9);
  result.setup.sequence_parallel = result.setup.tensor > 1;
  result.setup.zero = 1;
  result.setup.overlap_gradients = true;
  result.candidates = with_sizes_of(result, r.at("gbs").get<int>() / result.setup.data);
  return result;
}

/// Why no case can be made of a row of AMD's page.
const char* why_not_of_amd(const Document& row) {
  const std::string table = text_of(row, "table");
  if (table.starts_with("simulated")) return "another tool's prediction";
  if (table.starts_with("figure")) return "no device";
  if (number_or(row, "gbs", 0) == 0) return "no batch or micro-batch";
  return "a model or framework that the estimate does not know";
}

}  // namespace

std::vector<MeasuredTable> second_collection(const std::filesystem::path& folder) {
  return {
      table_of(folder, "BLOOM's trials, A100", "bigscience_176b_a100.json",
               "Megatron-DeepSpeed on 8 to 384 A100, full recompute, ZeRO 1; single iterations",
               bloom_case),
      table_of(folder, "BigScience, V100", "bigscience_v100.json",
               "GPTs of 7.5B to 116B on 16 to 128 V100 in nodes of four, full recompute",
               v100_case),
      table_of(folder, "MosaicML, FSDP", "mosaic_llm_foundry.json",
               "MPT of 125M to 70B on 8 to 512 A100 and H100, ZeRO 2 and 3, no tensor or pipeline "
               "parallelism",
               fsdp_case),
      table_of(folder, "NVIDIA's recipes, dgxc", "nvidia_dgxc_benchmarking.json",
               "Llama 3.1, GPT-3, Nemotron, Grok-1 and DeepSeek-V3 on 16 to 2,304 H100, NeMo",
               dgxc_case),
      table_of(folder, "NVIDIA's recipes, Megatron-Bridge", "nvidia_megatron_bridge.json",
               "Llama 3, Qwen3, GPT-OSS, DeepSeek-V3 and Kimi K2 on 8 to 1,024 H100, B200, B300, "
               "GB200 and "
               "GB300; 16 and 8 bits, MXFP8, NVFP4",
               bridge_case),
      table_of(folder, "NVIDIA's Automodel", "nvidia_automodel_h100.json",
               "mixtures of experts on 8 to 256 H100, FSDP2 of PyTorch", automodel_case),
      table_of(
          folder, "NVIDIA's long sequences", "nvidia_long_sequence.json",
          "Llama 2 7B on H100 and Llama 3 8B on B200, 4 to 1,024 devices, sequences of 4,096 to "
          "1,048,576 tokens, products of 8 bits; the fastest micro-batch that fits, which the "
          "page does not tell",
          long_sequence_case)};
}

std::vector<MeasuredTable> files_without_cases(const std::filesystem::path& folder) {
  return {
      table_of(folder, "LiBai and Megatron-LM", "libai_megatron.json", "",
               [](MeasuredTable& table, const Document& /*row*/) -> std::optional<MeasuredCase> {
                 return without(table, "no device");
               }),
      table_of(folder, "AMD's Primus", "amd_primus.json", "",
               [](MeasuredTable& table, const Document& row) -> std::optional<MeasuredCase> {
                 return without(table, why_not_of_amd(row));
               })};
}

}  // namespace pipewright::test
