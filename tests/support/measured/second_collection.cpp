// The second collection, golden/measured2/: steps of NVIDIA's recipes, BLOOM's trials, MosaicML's
// FSDP runs. Nothing is fitted to it. Rows are told by the software that ran them, as the public
// commands can be; one that the estimate cannot be asked is left out with the reason.
#include <algorithm>
#include <optional>

#include "tests/support/measured/recipes.hpp"

namespace pipewright::test {

namespace {

using planner::ParallelSetup;

/// Whether devices and batch come out whole with the row's degrees.
bool agrees(const Document& row, const ParallelSetup& setup) {
  return setup.devices() == row.at("gpus").get<int>() &&
         setup.data * setup.micro_batch_size * setup.micro_batches == row.at("gbs").get<int>();
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
  if (number_or(r, "gbs", 0) == 0) return without(table, "no batch");
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
  for (ParallelSetup& candidate : row->candidates) candidate.zero = 0;
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
  if (number_or(row, "gbs", 0) == 0) return "no batch";
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
          "Llama 2 7B on 4 to 1,024 H100, sequences of 4,096 to 1,048,576 tokens, products of 8 "
          "bits; the fastest micro-batch that fits, which the page does not tell",
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
