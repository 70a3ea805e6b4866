#include "tests/support/measured/recipes.hpp"

#include <algorithm>

namespace pipewright::test {

using planner::ParallelSetup;

namespace {

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

}  // namespace

int number_or(const Document& row, const char* name, int otherwise) {
  const auto found = row.find(name);
  return found == row.end() || found->is_null() ? otherwise : found->get<int>();
}

std::string text_of(const Document& row, const char* name) {
  const auto found = row.find(name);
  return found == row.end() || found->is_null() ? "" : found->get<std::string>();
}

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

std::vector<ParallelSetup> with_sizes_of(const MeasuredCase& row, int samples) {
  std::vector<ParallelSetup> all;
  for (int size = 1; size <= samples && samples % size == 0; size *= 2) {
    all.push_back(row.setup);
    all.back().micro_batch_size = size;
    all.back().micro_batches = samples / size;
  }
  return all;
}

std::nullopt_t without(MeasuredTable& table, const char* reason) {
  ++table.left_out[reason];
  return std::nullopt;
}

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

std::optional<MeasuredCase> recipe_case(MeasuredTable& table, const Document& row,
                                        const std::string& device, const char* seconds) {
  const std::string precision = precision_of(row);
  if (number_or(row, "gbs", 0) == 0) return without(table, "no batch");
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
  if (number_or(row, "mbs", 0) == 0 && result.setup.data > 0)
    result.candidates = with_sizes_of(result, row.at("gbs").get<int>() / result.setup.data);
  result.measured = row.at(seconds);
  return result;
}

}  // namespace pipewright::test
