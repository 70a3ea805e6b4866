// A decoder-only transformer as its authors publish it: the widths that decide parameters,
// operations and bytes, with grouped queries, gated feed-forward parts, experts and latent
// attention. What the analytical estimates read (planner/estimate/); a Model is what the executor
// trains. Plain data and pure functions; counts are numbers of weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/block_kind.hpp"
#include "core/model/lora.hpp"
#include "core/model/model.hpp"

namespace pipewright {

/// Experts in place of the feed-forward part of the last of each `every` blocks, but for the first
/// `dense_blocks`.
struct Experts {
  int count = 0;       // 0: there are none
  int chosen = 0;      // experts that a token goes to
  int ffn = 0;         // inner width of one expert
  int shared_ffn = 0;  // inner width of what every token goes through besides (0: nothing)
  int dense_blocks = 0;
  int every = 1;
  int latent = 0;  // width that a token is brought to before it is sent (0: none, it goes as it is)

  /// Of what an expert reads and makes.
  double outer(int hidden) const { return latent > 0 ? latent : hidden; }
  bool operator==(const Experts&) const = default;
};

/// Attention to the last `tokens` alone, the own among them, but for the last of each `full_every`
/// blocks (0: of all).
struct AttentionWindow {
  int tokens = 0;  // 0: there is none
  int full_every = 0;

  bool operator==(const AttentionWindow&) const = default;
};

/// Mamba-2 in place of attention ("Transformers are SSMs", arXiv:2405.21060, §7): heads of a width,
/// a state of `state` numbers for each of these, which `groups` of heads read and write alike.
struct MambaWidths {
  int heads = 0;  // 0: there is none
  int head = 0, state = 0, groups = 1;

  bool is_used() const { return heads > 0; }
  double inner() const { return static_cast<double>(heads) * head; }
  /// What a convolution over the last tokens goes through: inputs, and both sides of the state.
  double convolved() const { return inner() + 2.0 * groups * state; }
  /// With a gate and a time step for each head: what a block's first product gives.
  double entering() const { return convolved() + inner() + heads; }
  bool operator==(const MambaWidths&) const = default;
};

struct Architecture {
  std::string name;
  int hidden = 0, blocks = 0;
  int heads = 0, key_value_heads = 0, head = 0;  // `head`: width of one head
  int ffn = 0;                                   // inner width of a dense feed-forward part
  bool gated = false;                            // three matrices (SwiGLU) instead of two
  bool biases = true;                            // of linear layers, and shifts of the norms
  int vocabulary = 0, sequence = 0;
  /// Tokens of a sample where several lie packed in a sequence, and attention stays within each; 0:
  /// a sequence is one sample.
  int sample_tokens = 0;
  bool learned_positions = false;
  bool tied_head = false;  // the head multiplies with the embedding's weights
  Experts experts;
  LatentWidths latent;  // where they are used, `head` is not
  AttentionWindow window;
  MambaWidths mamba;
  /// Of a hybrid, a letter for each block as Megatron-LM writes it: M Mamba, * attention, - dense
  /// feed-forward part, E experts; "": every block has attention and a feed-forward part.
  std::string pattern;
  /// Beside the next token so many further ones are predicted, each by a block of its own behind
  /// the last one, with attention and, where there are any, experts (DeepSeek-V3, arXiv:2412.19437,
  /// §2.2): its input and the token's embedding, side by side, are brought to the width again, and
  /// its output goes through the head.
  int further_tokens = 0;
  /// Where it is used its adapters alone are trained, and all other weights are frozen.
  Lora lora = {};

  BlockKind kind_of(int block) const;
  /// Whether all blocks are dense ones, and from some one on such with experts.
  bool changes_once() const { return pattern.empty() && window.tokens == 0 && experts.every == 1; }
  BlockKind kind_of_further() const { return experts.count > 0 ? kExpertBlock : kDenseBlock; }
  bool operator==(const Architecture&) const = default;
};

/// A transformer of GPT-2's kind: as many key and value heads as heads, ffn of 4 * hidden, learned
/// positions, a tied head.
Architecture gpt_architecture(std::string name, int hidden, int blocks, int heads, int vocabulary,
                              int sequence);

/// Tokens of its sample that a token looks at, on average, under a causal mask.
double tokens_seen(const Architecture& model, Mixer mixer);

/// Weights of one norm; of a mixer; of a dense feed-forward part; of one expert; of what all tokens
/// go through beside the experts.
double norm_parameters(const Architecture& model);
double mixer_parameters(const Architecture& model, Mixer mixer);
double feed_forward_parameters(const Architecture& model);
double expert_parameters(const Architecture& model);
double beside_experts_parameters(const Architecture& model);
/// Of a block, with all its experts; with those alone that a token meets.
double block_parameters(const Architecture& model, BlockKind kind);
double active_block_parameters(const Architecture& model, BlockKind kind);
double embedding_parameters(const Architecture& model);
/// The last norm and the head's matrix, which counts nothing where it is tied, and the blocks for
/// further tokens.
double head_parameters(const Architecture& model);
/// All but the adapters'.
double parameters(const Architecture& model);
/// Of a block's adapters: rank * (in + out) of each (arXiv:2106.09685 §4.1).
double lora_block_parameters(const Architecture& model);
/// What an optimizer updates: the adapters where there are some, else all weights.
double trained_parameters(const Architecture& model);
/// Those that a token meets: of the experts only the chosen ones.
double active_parameters(const Architecture& model);

/// Throws InputError with what does not fit: a count below 1, heads that key and value heads do not
/// divide, more experts chosen than there are, a pattern of other letters or length, adapters
/// that the model cannot have (lora_fault()).
void check(const Architecture& model);

/// "gpt3-175b", "megatron-1.7b" … "megatron-1t", "llama3-8b", "llama3-70b", "llama3-405b",
/// "mixtral-8x7b", "deepseek-v2", "deepseek-v3", "kimi-k2", "qwen3-30b-a3b", "qwen3-235b-a22b",
/// "gpt-oss-120b". Throws InputError with a suggestion.
Architecture architecture_preset(std::string_view name);
std::vector<std::string_view> architecture_preset_names();

}  // namespace pipewright
