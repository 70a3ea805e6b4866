#include "core/plan/framework_json.hpp"

#include <algorithm>
#include <array>
#include <variant>

#include "core/base/json_fields.hpp"

namespace pipewright {

namespace {

/// A trait: its field, which is its member's name, and the largest value that makes sense.
struct Trait {
  std::string_view field;
  std::variant<double FrameworkTraits::*, int FrameworkTraits::*, bool FrameworkTraits::*> member;
  double most = 1;
};

constexpr double kMostSeconds = 100, kMostKernels = 100'000, kMostBytesOfOne = 10'000;

constexpr std::array kTraits{
    Trait{"launch_seconds", &FrameworkTraits::launch_seconds, kMostSeconds},
    Trait{"blocking_launches", &FrameworkTraits::blocking_launches},
    Trait{"graphs_steps", &FrameworkTraits::graphs_steps},
    Trait{"forward_kernels", &FrameworkTraits::forward_kernels, kMostKernels},
    Trait{"backward_kernels", &FrameworkTraits::backward_kernels, kMostKernels},
    Trait{"attention_core_kernels", &FrameworkTraits::attention_core_kernels, kMostKernels},
    Trait{"embedding_kernels", &FrameworkTraits::embedding_kernels, kMostKernels},
    Trait{"head_kernels", &FrameworkTraits::head_kernels, kMostKernels},
    Trait{"expert_kernels", &FrameworkTraits::expert_kernels, kMostKernels},
    Trait{"graphs_routing", &FrameworkTraits::graphs_routing},
    Trait{"groups_experts", &FrameworkTraits::groups_experts},
    Trait{"fused_kernels", &FrameworkTraits::fused_kernels},
    Trait{"flash_attention", &FrameworkTraits::flash_attention},
    Trait{"flash_rate", &FrameworkTraits::flash_rate, 100},
    Trait{"dropout", &FrameworkTraits::dropout},
    Trait{"fused_loss", &FrameworkTraits::fused_loss},
    Trait{"loss_kept_bytes", &FrameworkTraits::loss_kept_bytes, kMostBytesOfOne},
    Trait{"divided_loss_kept_bytes", &FrameworkTraits::divided_loss_kept_bytes, kMostBytesOfOne},
    Trait{"keeps_weight_buffers", &FrameworkTraits::keeps_weight_buffers},
    Trait{"pads_vocabulary", &FrameworkTraits::pads_vocabulary},
    Trait{"loss_bytes_per_logit", &FrameworkTraits::loss_bytes_per_logit, kMostBytesOfOne},
    Trait{"product_bytes", &FrameworkTraits::product_bytes, 2},
    Trait{"gradient_bytes", &FrameworkTraits::gradient_bytes, kMostBytesOfOne},
    Trait{"tied_gradient_bytes", &FrameworkTraits::tied_gradient_bytes, kMostBytesOfOne},
    Trait{"accumulate_bytes", &FrameworkTraits::accumulate_bytes, kMostBytesOfOne},
    Trait{"fuses_accumulation", &FrameworkTraits::fuses_accumulation},
    Trait{"converts_gradients", &FrameworkTraits::converts_gradients},
    Trait{"gather_bytes", &FrameworkTraits::gather_bytes, kMostBytesOfOne},
    Trait{"gathers_tensors", &FrameworkTraits::gathers_tensors},
    Trait{"part_seconds", &FrameworkTraits::part_seconds, kMostSeconds},
    Trait{"scatters_once", &FrameworkTraits::scatters_once},
    Trait{"reduction_bytes", &FrameworkTraits::reduction_bytes, kMostBytesOfOne},
    Trait{"optimizer_bytes", &FrameworkTraits::optimizer_bytes, kMostBytesOfOne},
    Trait{"state_bytes", &FrameworkTraits::state_bytes, kMostBytesOfOne},
    Trait{"recomputes_norms", &FrameworkTraits::recomputes_norms},
    Trait{"recomputes_activations", &FrameworkTraits::recomputes_activations},
    Trait{"recomputes_projections", &FrameworkTraits::recomputes_projections},
    Trait{"selects_operators", &FrameworkTraits::selects_operators},
    Trait{"keeps_queries", &FrameworkTraits::keeps_queries},
    Trait{"keeps_mixed", &FrameworkTraits::keeps_mixed},
    Trait{"skips_last_product", &FrameworkTraits::skips_last_product},
    Trait{"offloaded_blocks", &FrameworkTraits::offloaded_blocks, kMostKernels},
    Trait{"step_overhead_seconds", &FrameworkTraits::step_overhead_seconds, kMostSeconds},
    Trait{"divides_sequence", &FrameworkTraits::divides_sequence},
    Trait{"hides_gradient_messages", &FrameworkTraits::hides_gradient_messages},
    Trait{"chunks_messages", &FrameworkTraits::chunks_messages},
    Trait{"keeps_gathered", &FrameworkTraits::keeps_gathered},
    Trait{"sends_tokens_once", &FrameworkTraits::sends_tokens_once},
    Trait{"routes_in_turn", &FrameworkTraits::routes_in_turn},
    Trait{"hides_expert_messages", &FrameworkTraits::hides_expert_messages},
    Trait{"interleaves", &FrameworkTraits::interleaves},
    Trait{"waits_for_messages", &FrameworkTraits::waits_for_messages},
    Trait{"sends_mask", &FrameworkTraits::sends_mask},
    Trait{"gathers_activations", &FrameworkTraits::gathers_activations},
    Trait{"sends_whole_gradients", &FrameworkTraits::sends_whole_gradients},
    Trait{"keeps_received", &FrameworkTraits::keeps_received}};

void read_member(const JsonCursor& value, double most, double& member) {
  member = value.number(0, most);
}
void read_member(const JsonCursor& value, double most, int& member) {
  member = read_count(value, 0, static_cast<int>(most));
}
void read_member(const JsonCursor& value, double, bool& member) { member = value.boolean(); }

const FrameworkTraits* find_known(const std::vector<FrameworkTraits>& known,
                                  const std::string& name) {
  const auto found = std::ranges::find(known, name, &FrameworkTraits::name);
  return found == known.end() ? nullptr : &*found;
}

std::vector<std::string_view> names_of(const std::vector<FrameworkTraits>& known) {
  std::vector<std::string_view> names;
  for (const FrameworkTraits& one : known) names.push_back(one.name);
  return names;
}

/// The object of a framework.json.
FrameworkTraits read_own(const JsonCursor& document) {
  require_schema_where_document(document, "framework");
  std::vector<std::string_view> fields{"schema", "name", "like", "sources"};
  for (const Trait& trait : kTraits) fields.push_back(trait.field);
  document.only(fields);

  const std::vector<FrameworkTraits> known = known_frameworks();
  std::vector<std::pair<std::string_view, FrameworkTraits>> choices;
  for (const FrameworkTraits& one : known) choices.emplace_back(one.name, one);
  const JsonCursor name = document.at("name");
  FrameworkTraits traits = read_choice(document.at("like"), choices);
  traits.like = traits.name;
  traits.name = read_name(name);
  if (find_known(known, traits.name)) name.fail("a name of its own, not that of a known framework");
  if (const auto sources = document.find("sources")) traits.sources = sources->string();
  for (const Trait& trait : kTraits) {
    if (const auto value = document.find(trait.field)) {
      std::visit([&](auto member) { read_member(*value, trait.most, traits.*member); },
                 trait.member);
    }
  }
  if (product_format(traits.product_bytes) == nullptr)
    document.at("product_bytes").fail("2 (bf16), 1 (fp8), 1.03125 (mxfp8) or 0.5625 (nvfp4)");
  if (traits.flash_rate <= 0) document.at("flash_rate").fail("a rate above 0");
  return traits;
}

}  // namespace

FrameworkTraits read_framework(const JsonCursor& value) {
  const std::vector<FrameworkTraits> known = known_frameworks();
  return read_preset_or_file(value, names_of(known), read_own,
                             [&](const std::string& name) { return *find_known(known, name); });
}

Json to_json(const FrameworkTraits& framework) {
  const std::vector<FrameworkTraits> known = known_frameworks();
  const FrameworkTraits* const like = find_known(known, framework.like);
  if (like == nullptr) return framework.name;
  Json json = {
      {"schema", "pipewright.framework/1"}, {"name", framework.name}, {"like", framework.like}};
  if (!framework.sources.empty()) json["sources"] = framework.sources;
  for (const Trait& trait : kTraits) {
    std::visit(
        [&](auto member) {
          if (framework.*member != like->*member) json[trait.field] = framework.*member;
        },
        trait.member);
  }
  return json;
}

}  // namespace pipewright
