// Which layers keep no activations from their forward to their backward, and compute them again
// right before it: less memory for one more forward. The word is that of the training frameworks
// (Megatron-LM: full and selective, arXiv:2205.05198). Plain data; pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

/// What is asked for. "selective": of every self-attention, the probabilities and what is made of
/// them, which are much memory for little work.
struct RecomputeSpec {
  enum class Kind : std::uint8_t { None, Full, Selective, Listed };
  Kind kind = Kind::None;
  // Listed: index or name in the model, of layers to recompute whole, and of ones whose attention
  // is.
  std::vector<std::variant<int, std::string>> layers = {}, attention_of = {};

  bool operator==(const RecomputeSpec&) const = default;
};

/// What is computed again of one of the model's layers: less memory and more time from one to the
/// next.
enum class LayerRecompute : std::uint8_t { None, Attention, Whole };

/// "none", "selective", "full".
std::string_view to_string(LayerRecompute recompute);
/// What each of a plan's stages does, in short, the most first: "full on 0-2, none on 3".
std::string describe_recompute(std::span<const LayerRecompute> of_stage);

/// By layer of the model. Throws InputError, without a place, for a layer that is not there, for
/// one in both lists and for a name that several have.
std::vector<LayerRecompute> recompute_of(const Model& model, const RecomputeSpec& spec);

/// The inverse of recompute_of(): in one word where all layers do the same.
RecomputeSpec recompute_spec(std::span<const LayerRecompute> of_layer);

/// "none", "full", "selective", a list of indices and names, or {"full": list, "selective": list};
/// whether the model has those is another question.
RecomputeSpec read_recompute(const JsonCursor& value);
Json to_json(const RecomputeSpec& spec);
/// Throws InputError at a "recompute" of `training` that does not fit the model.
void require_recompute_fits(const JsonCursor& training, const Model& model);

}  // namespace pipewright
