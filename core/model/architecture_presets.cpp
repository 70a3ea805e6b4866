// The published models, each with the table that its numbers come from.
#include <array>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/model/architecture.hpp"

namespace pipewright {

namespace {

/// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
/// (arXiv:2104.04473), table 1: sequences of 2048, a vocabulary of 51200.
struct MegatronRow {
  std::string_view name;
  int heads, hidden, blocks;
};
constexpr std::array<MegatronRow, 10> kMegatron{{
    {"megatron-1.7b", 24, 2304, 24},
    {"megatron-3.6b", 32, 3072, 30},
    {"megatron-7.5b", 32, 4096, 36},
    {"megatron-18b", 48, 6144, 40},
    {"megatron-39b", 64, 8192, 48},
    {"megatron-76b", 80, 10240, 60},
    {"megatron-145b", 96, 12288, 80},
    {"megatron-310b", 128, 16384, 96},
    {"megatron-530b", 128, 20480, 105},
    {"megatron-1t", 160, 25600, 128},
}};

/// Gated, with rotary positions, a head of its own, and no biases.
Architecture gated(std::string name, int hidden, int blocks, int heads, int ffn, int vocabulary,
                   int sequence) {
  Architecture model =
      gpt_architecture(std::move(name), hidden, blocks, heads, vocabulary, sequence);
  model.ffn = ffn;
  model.gated = true;
  model.biases = model.learned_positions = model.tied_head = false;
  return model;
}

/// "The Llama 3 Herd of Models" (arXiv:2407.21783), table 3, with the sequences of the first stage
/// of its training.
Architecture llama3(std::string name, int blocks, int hidden, int ffn, int heads) {
  Architecture model = gated(std::move(name), hidden, blocks, heads, ffn, 128256, 8192);
  model.key_value_heads = 8;
  return model;
}

/// "Mixtral of Experts" (arXiv:2401.04088), table 1.
Architecture mixtral() {
  Architecture model = llama3("mixtral-8x7b", 32, 4096, 14336, 32);
  model.vocabulary = 32000;
  model.sequence = 4096;
  model.experts = {.count = 8, .chosen = 2, .ffn = 14336};
  return model;
}

/// All of its blocks have experts.
Architecture mixture(std::string name, int hidden, int blocks, int heads, int vocabulary,
                     const Experts& experts) {
  Architecture model = gated(std::move(name), hidden, blocks, heads, experts.ffn, vocabulary, 4096);
  model.experts = experts;
  return model;
}

/// "Qwen3 Technical Report" (arXiv:2505.09388), table 2; widths from the models' config.json.
Architecture qwen3(std::string name, int hidden, int blocks, int heads, int ffn) {
  Architecture model = mixture(std::move(name), hidden, blocks, heads, 151936,
                               {.count = 128, .chosen = 8, .ffn = ffn});
  model.key_value_heads = 4;
  model.head = 128;
  return model;
}

/// "gpt-oss-120b & gpt-oss-20b Model Card" (arXiv:2508.10925), table 1 and §2; widths from its
/// config.json.
Architecture gpt_oss(std::string name, int blocks, int experts) {
  Architecture model = mixture(std::move(name), 2880, blocks, 64, 201088,
                               {.count = experts, .chosen = 4, .ffn = 2880});
  model.key_value_heads = 8;
  model.head = 64;
  model.biases = true;
  model.window = {.tokens = 128, .full_every = 2};
  return model;
}

/// Llama 4 Maverick; widths from its config.json (meta-llama/Llama-4-Maverick-17B-128E). Its layers
/// that see 8,192 tokens alone see all of a sequence of the first stage of its training.
Architecture llama4_maverick() {
  Architecture model = gated("llama4-maverick", 5120, 48, 40, 16384, 202048, 8192);
  model.key_value_heads = 8;
  model.experts = {.count = 128, .chosen = 1, .ffn = 8192, .shared_ffn = 8192, .every = 2};
  return model;
}

/// Two matrices and a squared ReLU in the feed-forward part, heads of 128.
Architecture hybrid(std::string name, int hidden, int heads, int key_value_heads, int ffn,
                    const MambaWidths& mamba, std::string pattern) {
  const int blocks = static_cast<int>(pattern.size());
  Architecture model = gated(std::move(name), hidden, blocks, heads, ffn, 131072, 8192);
  model.gated = false;
  model.key_value_heads = key_value_heads;
  model.head = 128;
  model.mamba = mamba;
  model.pattern = std::move(pattern);
  return model;
}

/// "Nemotron-H" (arXiv:2504.03624), table 1 and figure 2.
Architecture nemotron_h_8b() {
  return hybrid("nemotron-h-8b", 4096, 32, 8, 21504,
                {.heads = 128, .head = 64, .state = 128, .groups = 8},
                "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-");
}
Architecture nemotron_h_56b() {
  return hybrid("nemotron-h-56b", 8192, 64, 8, 32768,
                {.heads = 256, .head = 64, .state = 256, .groups = 8},
                "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-"
                "M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-");
}

/// "Nemotron 3 Nano" (arXiv:2512.20848), table 1; the pattern from its config.json.
Architecture nemotron_3_nano() {
  Architecture model = hybrid("nemotron-3-nano", 2688, 32, 2, 1856,
                              {.heads = 64, .head = 64, .state = 128, .groups = 8},
                              "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME");
  model.experts = {.count = 128, .chosen = 6, .ffn = 1856, .shared_ffn = 3712};
  return model;
}

/// Nemotron 3 Super; widths from its config.json (nvidia/NVIDIA-Nemotron-3-Super-120B-A12B),
/// without the layers that predict further tokens. Tokens go to experts in a latent width.
Architecture nemotron_3_super() {
  Architecture model = hybrid(
      "nemotron-3-super", 4096, 32, 2, 2688, {.heads = 128, .head = 64, .state = 128, .groups = 8},
      "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*"
      "EMEMEMEME");
  model.experts = {.count = 512, .chosen = 22, .ffn = 2688, .shared_ffn = 5376, .latent = 1024};
  return model;
}

Architecture deepseek(std::string name, int hidden, int blocks, int ffn, int vocabulary,
                      const Experts& experts) {
  Architecture model = gated(std::move(name), hidden, blocks, 128, ffn, vocabulary, 4096);
  model.experts = experts;
  model.latent = {
      .query_rank = 1536, .key_value_rank = 512, .plain = 128, .rotary = 64, .value = 128};
  return model;
}

/// "DeepSeek-V2" (arXiv:2405.04434), §3.1.2.
Architecture deepseek_v2() {
  return deepseek(
      "deepseek-v2", 5120, 60, 12288, 102400,
      {.count = 160, .chosen = 6, .ffn = 1536, .shared_ffn = 2 * 1536, .dense_blocks = 1});
}

/// "DeepSeek-V3 Technical Report" (arXiv:2412.19437), §4.2, without the layer that predicts a
/// second token.
Architecture deepseek_v3() {
  return deepseek("deepseek-v3", 7168, 61, 18432, 129280,
                  {.count = 256, .chosen = 8, .ffn = 2048, .shared_ffn = 2048, .dense_blocks = 3});
}

/// "Kimi K2: Open Agentic Intelligence" (arXiv:2507.20534), table 2; the vocabulary from its
/// config.json.
Architecture kimi_k2() {
  Architecture model =
      deepseek("kimi-k2", 7168, 61, 18432, 163840,
               {.count = 384, .chosen = 8, .ffn = 2048, .shared_ffn = 2048, .dense_blocks = 1});
  model.heads = model.key_value_heads = 64;
  model.head = model.hidden / model.heads;
  return model;
}

using Maker = Architecture (*)();
struct Preset {
  std::string_view name;
  Maker make;
};
constexpr std::array<Preset, 17> kOthers{{
    // "Language Models are Few-Shot Learners" (arXiv:2005.14165), table 2.1; the vocabulary padded
    // as Megatron-LM pads it.
    {"gpt3-175b", [] { return gpt_architecture("gpt3-175b", 12288, 96, 96, 51200, 2048); }},
    {"llama3-8b", [] { return llama3("llama3-8b", 32, 4096, 14336, 32); }},
    {"llama3-70b", [] { return llama3("llama3-70b", 80, 8192, 28672, 64); }},
    {"llama3-405b", [] { return llama3("llama3-405b", 126, 16384, 53248, 128); }},
    {"mixtral-8x7b", mixtral},
    {"deepseek-v2", deepseek_v2},
    {"deepseek-v3", deepseek_v3},
    {"kimi-k2", kimi_k2},
    {"qwen3-30b-a3b", [] { return qwen3("qwen3-30b-a3b", 2048, 48, 32, 768); }},
    {"qwen3-235b-a22b", [] { return qwen3("qwen3-235b-a22b", 4096, 94, 64, 1536); }},
    {"gpt-oss-20b", [] { return gpt_oss("gpt-oss-20b", 24, 32); }},
    {"gpt-oss-120b", [] { return gpt_oss("gpt-oss-120b", 36, 128); }},
    {"llama4-maverick", llama4_maverick},
    {"nemotron-h-8b", nemotron_h_8b},
    {"nemotron-h-56b", nemotron_h_56b},
    {"nemotron-3-nano", nemotron_3_nano},
    {"nemotron-3-super", nemotron_3_super},
}};

}  // namespace

std::vector<std::string_view> architecture_preset_names() {
  std::vector<std::string_view> names;
  for (const MegatronRow& row : kMegatron) names.push_back(row.name);
  for (const Preset& preset : kOthers) names.push_back(preset.name);
  return names;
}

Architecture architecture_preset(std::string_view name) {
  for (const MegatronRow& row : kMegatron) {
    if (row.name == name) {
      return gpt_architecture(std::string(name), row.hidden, row.blocks, row.heads, 51200, 2048);
    }
  }
  for (const Preset& preset : kOthers) {
    if (preset.name == name) return preset.make();
  }
  std::string list;
  for (const std::string_view known : architecture_preset_names()) {
    list += (list.empty() ? "" : ", ") + std::string(known);
  }
  throw InputError("unknown architecture \"" + std::string(name) + "\"" +
                   did_you_mean(name, architecture_preset_names()) + "; known are " + list);
}

}  // namespace pipewright
