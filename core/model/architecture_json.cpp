#include "core/model/architecture_json.hpp"

#include "core/base/json_fields.hpp"
#include "core/model/latent.hpp"
#include "core/model/layers.hpp"

namespace pipewright {

namespace {

constexpr int kMostCount = 65536, kMostWide = 1 << 24, kMostFurtherTokens = 16;

int count_or(const JsonCursor& document, std::string_view key, int least, int most, int otherwise) {
  const auto value = document.find(key);
  return value ? read_count(*value, least, most) : otherwise;
}

bool flag_or(const JsonCursor& document, std::string_view key, bool otherwise) {
  const auto value = document.find(key);
  return value ? value->boolean() : otherwise;
}

Experts read_experts(const JsonCursor& value) {
  value.only({"count", "chosen", "ffn", "shared_ffn", "dense_layers", "every", "latent"});
  Experts experts;
  experts.count = read_count(value.at("count"), 1, kMostCount);
  experts.chosen = read_count(value.at("chosen"), 1, experts.count);
  experts.ffn = read_count(value.at("ffn"), 1, kMostWide);
  experts.shared_ffn = count_or(value, "shared_ffn", 0, kMostWide, 0);
  experts.dense_blocks = count_or(value, "dense_layers", 0, kMostCount, 0);
  experts.every = count_or(value, "every", 1, kMostBlocks, 1);
  experts.latent = count_or(value, "latent", 0, kMostWide, 0);
  return experts;
}

AttentionWindow read_window(const JsonCursor& value) {
  value.only({"tokens", "full_every"});
  return {read_count(value.at("tokens"), 1, kMostWide),
          count_or(value, "full_every", 0, kMostBlocks, 0)};
}

MambaWidths read_mamba(const JsonCursor& value) {
  value.only({"heads", "head", "state", "groups"});
  MambaWidths mamba;
  mamba.heads = read_count(value.at("heads"), 1, kMostCount);
  mamba.head = read_count(value.at("head"), 1, kMostWide);
  mamba.state = read_count(value.at("state"), 1, kMostWide);
  mamba.groups = count_or(value, "groups", 1, mamba.heads, 1);
  return mamba;
}

/// As many as a pattern has letters, where it is there and they are left out.
int read_blocks(const JsonCursor& document, const std::string& pattern) {
  if (!pattern.empty() && !document.find("layers")) return static_cast<int>(pattern.size());
  return read_count(document.at("layers"), 1, kMostBlocks);
}

Architecture read_widths(const JsonCursor& document) {
  document.only({"schema",
                 "name",
                 "hidden",
                 "layers",
                 "heads",
                 "kv_heads",
                 "head",
                 "ffn",
                 "gated",
                 "biases",
                 "vocabulary",
                 "sequence",
                 "sample_tokens",
                 "learned_positions",
                 "tied_head",
                 "experts",
                 "latent_attention",
                 "attention_window",
                 "mamba",
                 "pattern",
                 "further_tokens",
                 "lora"});
  Architecture model;
  model.name = "transformer";
  model.hidden = read_count(document.at("hidden"), 1, kMostWide);
  if (const auto pattern = document.find("pattern")) model.pattern = pattern->string();
  model.blocks = read_blocks(document, model.pattern);
  const JsonCursor heads = document.at("heads");
  model.heads = read_count(heads, 1, kMostCount);
  model.key_value_heads = count_or(document, "kv_heads", 1, model.heads, model.heads);
  if (!document.find("head") && model.hidden % model.heads != 0) {
    heads.fail("a number of heads that divides hidden = " + std::to_string(model.hidden) +
               ", or \"head\", the width of one");
  }
  model.head = count_or(document, "head", 1, kMostWide, model.hidden / model.heads);
  model.ffn = count_or(document, "ffn", 1, kMostWide, 4 * model.hidden);
  model.gated = flag_or(document, "gated", false);
  model.biases = flag_or(document, "biases", true);
  model.vocabulary = read_count(document.at("vocabulary"), 1, kMostWide);
  model.sequence = read_count(document.at("sequence"), 1, kMostWide);
  model.learned_positions = flag_or(document, "learned_positions", true);
  model.tied_head = flag_or(document, "tied_head", true);
  if (const auto experts = document.find("experts")) model.experts = read_experts(*experts);
  if (const auto latent = document.find("latent_attention"))
    model.latent = read_latent_widths(*latent, kMostWide);
  if (const auto window = document.find("attention_window")) model.window = read_window(*window);
  if (const auto mamba = document.find("mamba")) model.mamba = read_mamba(*mamba);
  model.further_tokens = count_or(document, "further_tokens", 0, kMostFurtherTokens, 0);
  return model;
}

}  // namespace

Architecture read_architecture(const JsonCursor& document) {
  require_schema(document, "architecture");
  Architecture model;
  if (const auto preset = document.find("preset")) {
    document.only({"schema", "name", "preset", "layers", "sequence", "sample_tokens",
                   "further_tokens", "lora"});
    model = parsed_at(*preset, [&] { return architecture_preset(preset->string()); });
    model.blocks = count_or(document, "layers", 1,
                            model.pattern.empty() ? kMostBlocks : model.blocks, model.blocks);
    if (!model.pattern.empty()) model.pattern.resize(static_cast<std::size_t>(model.blocks));
    model.sequence = count_or(document, "sequence", 1, kMostWide, model.sequence);
    model.further_tokens =
        count_or(document, "further_tokens", 0, kMostFurtherTokens, model.further_tokens);
  } else {
    model = read_widths(document);
  }
  model.sample_tokens = count_or(document, "sample_tokens", 0, model.sequence, 0);
  if (const auto name = document.find("name")) model.name = read_name(*name);
  parsed_at(document, [&] { check(model); });
  if (const auto lora = document.find("lora")) {
    model.lora = read_lora(*lora);
    parsed_at(*lora, [&] { check(model); });
  }
  return model;
}

Json to_json(const Architecture& model) {
  Json json = {{"schema", "pipewright.architecture/1"},
               {"name", model.name},
               {"hidden", model.hidden},
               {"layers", model.blocks},
               {"heads", model.heads},
               {"kv_heads", model.key_value_heads},
               {"head", model.head},
               {"ffn", model.ffn},
               {"gated", model.gated},
               {"biases", model.biases},
               {"vocabulary", model.vocabulary},
               {"sequence", model.sequence},
               {"learned_positions", model.learned_positions},
               {"tied_head", model.tied_head}};
  if (model.experts.count > 0) {
    json["experts"] = {{"count", model.experts.count},
                       {"chosen", model.experts.chosen},
                       {"ffn", model.experts.ffn},
                       {"shared_ffn", model.experts.shared_ffn},
                       {"dense_layers", model.experts.dense_blocks}};
    if (model.experts.every > 1) json["experts"]["every"] = model.experts.every;
    if (model.experts.latent > 0) json["experts"]["latent"] = model.experts.latent;
  }
  if (model.latent.is_used()) json["latent_attention"] = to_json(model.latent);
  if (model.window.tokens > 0) {
    json["attention_window"] = {{"tokens", model.window.tokens},
                                {"full_every", model.window.full_every}};
  }
  if (model.mamba.is_used()) {
    json["mamba"] = {{"heads", model.mamba.heads},
                     {"head", model.mamba.head},
                     {"state", model.mamba.state},
                     {"groups", model.mamba.groups}};
  }
  if (!model.pattern.empty()) json["pattern"] = model.pattern;
  if (model.further_tokens > 0) json["further_tokens"] = model.further_tokens;
  if (model.sample_tokens > 0) json["sample_tokens"] = model.sample_tokens;
  if (model.lora.is_used()) json["lora"] = to_json(model.lora);
  return json;
}

}  // namespace pipewright
