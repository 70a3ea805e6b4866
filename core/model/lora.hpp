// Low-rank adapters (LoRA; Hu et al., arXiv:2106.09685): the model's weights stay as they are, and
// beside some of its linear layers, W of out x in, the product of two thin matrices is trained: A
// of rank x in, and B of out x rank. Plain data and pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright {

struct Architecture;

struct Lora {
  int rank = 0;                             // 0: there are no adapters, all weights are trained
  std::vector<std::string> target_modules;  // names of lora_modules()

  bool is_used() const { return rank > 0; }
  bool operator==(const Lora&) const = default;
};

/// The product of a block that a module is or, where frameworks hold its matrices apart, is a part
/// of; in the order of the forward.
enum class LoraPlace { Qkv, Projection, First, Second };

/// A linear layer by the name that a framework gives it: Megatron core's, which Megatron-Bridge and
/// NeMo adapt, or that of Hugging Face's Llama, which PEFT and NeMo Automodel do.
struct LoraModule {
  std::string_view name;
  LoraPlace place;
  bool is_megatron;
};
std::span<const LoraModule> lora_modules();

/// A module with an adapter, with its widths in the whole model.
struct AdaptedLayer {
  LoraPlace place;
  double in = 0, out = 0;
};
/// Those of every block, in the order of target_modules.
std::vector<AdaptedLayer> adapted_layers(const Architecture& model);

/// Whether the product, or a part of it, has an adapter.
bool is_adapted(const Architecture& model, LoraPlace place);

/// Why the model cannot have these adapters; "": it can.
std::string lora_fault(const Architecture& model);

/// {"rank": 16, "target_modules": ["linear_qkv"]}; without target_modules all four of Megatron
/// core's layers, Megatron-Bridge's default (src/megatron/bridge/peft/lora.py).
Lora read_lora(const JsonCursor& value);
Json to_json(const Lora& lora);
/// Throws InputError with a suggestion.
void require_lora_module(std::string_view name);
std::vector<std::string> default_lora_modules();
inline constexpr int kMostLoraRank = 65536;

}  // namespace pipewright
