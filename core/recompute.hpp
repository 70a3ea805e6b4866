// Which layers keep no activations from their forward to their backward, and compute them again in
// front of it: less memory for one more forward. The word is that of the training frameworks
// (Megatron-LM: full and selective, arXiv:2205.05198). Plain data; pure functions.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/json.hpp"
#include "core/model.hpp"

namespace pipewright {

/// What is asked for. "selective": of every self-attention, the probabilities and what is made of
/// them, which are much memory for little work.
struct RecomputeSpec {
  enum class Kind : std::uint8_t { None, Full, Selective, Listed };
  Kind kind = Kind::None;
  std::vector<std::variant<int, std::string>> layers;  // Listed: index or name in the model

  bool operator==(const RecomputeSpec&) const = default;
};

/// What is computed again of one of the model's layers.
enum class LayerRecompute : std::uint8_t { None, Attention, Whole };

/// By layer of the model. Throws InputError, without a place, for a layer that is not there and for
/// a name that several have.
std::vector<LayerRecompute> recompute_of(const Model& model, const RecomputeSpec& spec);

/// The part of the layer's F that I does again, by operations (docs/metrics.md): 0 to 1.
double redone_share(const Layer& layer, const Model& model, LayerRecompute what);

/// "none", "full", "selective", or a list of indices and names; whether the model has those is
/// another question.
RecomputeSpec read_recompute(const JsonCursor& value);
Json to_json(const RecomputeSpec& spec);
/// Refuses, at its place, a "recompute" of `training` that does not fit the model.
void require_recompute_fits(const JsonCursor& training, const Model& model);

}  // namespace pipewright
