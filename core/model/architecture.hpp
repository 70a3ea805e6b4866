// A decoder-only transformer as its authors publish it: the widths that decide parameters,
// operations and bytes, with grouped queries, gated feed-forward parts, experts and latent
// attention. What the analytical estimates read (planner/estimate/); a Model is what the executor
// trains. Plain data and pure functions; counts are numbers of weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"

namespace pipewright {

/// Experts in place of the feed-forward part of all blocks but the first `dense_blocks`.
struct Experts {
  int count = 0;       // 0: there are none
  int chosen = 0;      // experts that a token goes to
  int ffn = 0;         // inner width of one expert
  int shared_ffn = 0;  // inner width of what every token goes through besides (0: nothing)
  int dense_blocks = 0;

  bool operator==(const Experts&) const = default;
};

struct Architecture {
  std::string name;
  int hidden = 0, blocks = 0;
  int heads = 0, key_value_heads = 0, head = 0;  // `head`: width of one head
  int ffn = 0;                                   // inner width of a dense feed-forward part
  bool gated = false;                            // three matrices (SwiGLU) instead of two
  bool biases = true;                            // of linear layers, and shifts of the norms
  int vocabulary = 0, sequence = 0;
  bool learned_positions = false;
  bool tied_head = false;  // the head multiplies with the embedding's weights
  Experts experts;
  LatentWidths latent;  // where they are used, `head` is not

  bool has_experts(int block) const { return experts.count > 0 && block >= experts.dense_blocks; }
  bool operator==(const Architecture&) const = default;
};

/// A transformer of GPT-2's kind: as many key and value heads as heads, ffn of 4 * hidden, learned
/// positions, a tied head.
Architecture gpt_architecture(std::string name, int hidden, int blocks, int heads, int vocabulary,
                              int sequence);

/// Weights of a block's attention and its two norms; of its feed-forward part; of one expert.
double attention_parameters(const Architecture& model);
double feed_forward_parameters(const Architecture& model);
double expert_parameters(const Architecture& model);
/// Of a block, with all its experts.
double block_parameters(const Architecture& model, int block);
double embedding_parameters(const Architecture& model);
/// The last norm and the head's matrix; the matrix counts nothing where it is tied.
double head_parameters(const Architecture& model);
double parameters(const Architecture& model);
/// Those that a token meets: of the experts only the chosen ones.
double active_parameters(const Architecture& model);

/// Throws InputError with what does not fit: a count below 1, heads that key and value heads do not
/// divide, more experts chosen than there are.
void check(const Architecture& model);

/// "gpt3-175b", "megatron-1.7b" … "megatron-1t", "llama3-8b", "llama3-70b", "llama3-405b",
/// "mixtral-8x7b", "deepseek-v2", "deepseek-v3", "kimi-k2", "qwen3-30b-a3b", "qwen3-235b-a22b",
/// "gpt-oss-120b". Throws InputError with a suggestion.
Architecture architecture_preset(std::string_view name);
std::vector<std::string_view> architecture_preset_names();

}  // namespace pipewright
