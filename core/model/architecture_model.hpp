// Between the two descriptions of a model: an Architecture, which the estimates read, and the chain
// of layers that is cut into stages. Pure functions.
#pragma once

#include <optional>

#include "core/base/json.hpp"
#include "core/model/architecture.hpp"
#include "core/model/model.hpp"

namespace pipewright {

/// The embedding, the blocks and the head, of 16-bit numbers: architecture.blocks + 2 layers. Where
/// the executor has the block (can_be_trained()), it is a transformer that can be trained; else a
/// block is a custom layer that only counts weights and operations.
Model model_of(const Architecture& architecture);

/// Of GPT's kind (biases, learned positions, no experts) or Llama's (gated, rotary positions, no
/// biases; also with experts or latent attention), plain heads together as wide as the model.
bool can_be_trained(const Architecture& architecture);

/// The architecture of a model that is a transformer; else nullopt.
std::optional<Architecture> architecture_of(const Model& model);

/// What "model" holds in a job and a plan: layers, or an architecture and the layers made of it.
struct DescribedModel {
  Model model;
  std::optional<Architecture> architecture;
  bool says_precision = true;  // bytes_per_element, or what stands for it: a preset's, 16 bits
};
/// An object of schema pipewright.model or pipewright.architecture.
DescribedModel read_described_model(const JsonCursor& document);
Json described_model_json(const Model& model, const std::optional<Architecture>& architecture);

}  // namespace pipewright
