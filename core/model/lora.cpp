#include "core/model/lora.hpp"

#include <algorithm>
#include <array>

#include "core/base/json_fields.hpp"
#include "core/model/architecture.hpp"

namespace pipewright {

namespace {

constexpr std::array<LoraModule, 11> kModules{{
    {"linear_qkv", LoraPlace::Qkv, true},
    {"linear_proj", LoraPlace::Projection, true},
    {"linear_fc1", LoraPlace::First, true},
    {"linear_fc2", LoraPlace::Second, true},
    {"q_proj", LoraPlace::Qkv, false},
    {"k_proj", LoraPlace::Qkv, false},
    {"v_proj", LoraPlace::Qkv, false},
    {"o_proj", LoraPlace::Projection, false},
    {"gate_proj", LoraPlace::First, false},
    {"up_proj", LoraPlace::First, false},
    {"down_proj", LoraPlace::Second, false},
}};

const LoraModule* find_module(std::string_view name) {
  const auto found = std::ranges::find(kModules, name, &LoraModule::name);
  return found == kModules.end() ? nullptr : &*found;
}

bool is_of_feed_forward(LoraPlace place) {
  return place == LoraPlace::First || place == LoraPlace::Second;
}

AdaptedLayer layer_of(const Architecture& model, const LoraModule& module) {
  const double hidden = model.hidden, ffn = model.ffn;
  const double queries = static_cast<double>(model.heads) * model.head;
  const double keys = static_cast<double>(model.key_value_heads) * model.head;
  switch (module.place) {
    case LoraPlace::Qkv:
      if (module.is_megatron) return {module.place, hidden, queries + 2 * keys};
      return {module.place, hidden, module.name == "q_proj" ? queries : keys};
    case LoraPlace::Projection:
      return {module.place, queries, hidden};
    case LoraPlace::First:
      return {module.place, hidden, module.is_megatron && model.gated ? 2 * ffn : ffn};
    case LoraPlace::Second:
      break;
  }
  return {module.place, ffn, hidden};
}

/// Why this module of the model has no adapter.
std::string module_fault(const Architecture& model, const LoraModule& module) {
  const std::string name(module.name);
  if (model.experts.count > 0 && is_of_feed_forward(module.place))
    return "LoRA on experts is not estimated; leave " + name + " out of target_modules";
  if (module.name == "gate_proj" && !model.gated)
    return "gate_proj: the model's feed-forward part is not gated";
  return "";
}

}  // namespace

std::span<const LoraModule> lora_modules() { return kModules; }

std::vector<AdaptedLayer> adapted_layers(const Architecture& model) {
  std::vector<AdaptedLayer> layers;
  for (const std::string& name : model.lora.target_modules)
    layers.push_back(layer_of(model, *find_module(name)));
  return layers;
}

bool is_adapted(const Architecture& model, LoraPlace place) {
  return std::ranges::any_of(model.lora.target_modules, [&](const std::string& name) {
    return find_module(name)->place == place;
  });
}

std::string lora_fault(const Architecture& model) {
  if (!model.lora.is_used()) return "";
  const std::vector<std::string>& names = model.lora.target_modules;
  if (names.empty()) return "LoRA on no module trains nothing; name some in target_modules";
  if (model.latent.is_used()) return "LoRA on a model with latent attention is not estimated";
  if (!model.pattern.empty()) return "LoRA on a hybrid (pattern) is not estimated";
  if (model.further_tokens > 0) return "LoRA beside further_tokens is not estimated";
  for (const std::string& name : names) {
    const LoraModule& module = *find_module(name);
    if (const std::string fault = module_fault(model, module); !fault.empty()) return fault;
    if (std::ranges::count(names, name) > 1) return "target_modules has " + name + " twice";
    if (module.is_megatron != find_module(names.front())->is_megatron)
      return "target_modules has names of Megatron core (" + std::string(kModules.front().name) +
             ") or of Hugging Face (q_proj), found " + names.front() + " beside " + name;
  }
  return "";
}

void require_lora_module(std::string_view name) {
  if (find_module(name) != nullptr) return;
  std::vector<std::string_view> names;
  std::string list;
  for (const LoraModule& module : kModules) {
    names.push_back(module.name);
    list += (list.empty() ? "" : ", ") + std::string(module.name);
  }
  throw InputError("expected one of " + list + did_you_mean(name, names) + ", found \"" +
                   std::string(name) + "\"");
}

std::vector<std::string> default_lora_modules() {
  std::vector<std::string> names;
  for (const LoraModule& module : kModules)
    if (module.is_megatron) names.emplace_back(module.name);
  return names;
}

Lora read_lora(const JsonCursor& value) {
  value.only({"rank", "target_modules"});
  Lora lora;
  lora.rank = read_count(value.at("rank"), 1, kMostLoraRank);
  const auto modules = value.find("target_modules");
  if (!modules) {
    lora.target_modules = default_lora_modules();
    return lora;
  }
  for (const JsonCursor& module : modules->elements()) {
    const std::string name = module.string();
    parsed_at(module, [&] { require_lora_module(name); });
    lora.target_modules.push_back(name);
  }
  if (lora.target_modules.empty()) modules->fail("at least one module");
  return lora;
}

Json to_json(const Lora& lora) {
  return {{"rank", lora.rank}, {"target_modules", lora.target_modules}};
}

}  // namespace pipewright
