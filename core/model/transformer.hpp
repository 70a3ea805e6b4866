// The shorthand for a decoder-only transformer: a few numbers that stand for a chain of layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/model/layers.hpp"
#include "core/model/model.hpp"

namespace pipewright {

enum class TransformerStyle : std::uint8_t {
  Gpt,    // learned positions, layer norms, gelu, biases
  Llama,  // rotary positions, rms norms, swiglu, no biases; keys and values may be shared by heads
};
/// "gpt", "llama".
std::string_view to_string(TransformerStyle style);

struct TransformerShape {
  int hidden = 0, layers = 0, heads = 0;
  int ffn = 0;  // width of the inner layer of the feed-forward part
  int vocabulary = 0, sequence = 0;
  bool tied_head = false;  // the head multiplies by the embedding's table
  TransformerStyle style = TransformerStyle::Gpt;
  int kv_heads = 0;                  // Llama: of keys and values; 0: as many as heads
  double rotary_base = kRotaryBase;  // Llama
  LatentWidths latent;               // Llama: of attention as DeepSeek-V2 has it, where used
  ExpertChoice choice;   // Llama: experts of width ffn in every block, as Mixtral has; none: dense
  int shared_ffn = 0;    // with experts: width of what every token goes through besides; 0: nothing
  int dense_blocks = 0;  // with experts: the first blocks, which have none
  int dense_ffn = 0;     // of these, in place of ffn

  bool has_experts() const { return choice.experts > 0; }
  bool has_experts(int block) const { return has_experts() && block >= dense_blocks; }
};

/// Embedding, `layers` blocks, head; named "embedding", "block k", "head". Checks nothing: the
/// shape has to be valid.
std::vector<Layer> expand(const TransformerShape& shape);

/// The shape whose expansion the model is; nullopt if it is not one.
std::optional<TransformerShape> transformer_shape_of(const Model& model);

}  // namespace pipewright
