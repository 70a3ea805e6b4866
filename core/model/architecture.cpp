#include "core/model/architecture.hpp"

#include "core/base/error.hpp"

namespace pipewright {

namespace {

double linear(double in, double out, bool bias) { return in * out + (bias ? out : 0); }

double norm(const Architecture& model, double width) { return model.biases ? 2 * width : width; }

/// DeepSeek-V2, §2.1.2: down and up for queries, down and up for keys and values, each with a norm
/// between, and the key's rotary part beside the latent.
double latent_parameters(const Architecture& model) {
  const LatentWidths& latent = model.latent;
  const double heads = model.heads, hidden = model.hidden;
  const double rank = latent.query_rank, queries = heads * latent.query();
  const double query = rank > 0 ? hidden * rank + rank + rank * queries : hidden * queries;
  const double key_value = hidden * (latent.key_value_rank + latent.rotary) +
                           latent.key_value_rank +
                           latent.key_value_rank * heads * (latent.plain + latent.value);
  return query + key_value + heads * latent.value * hidden;
}

double mlp(const Architecture& model, double outer, double inner) {
  return (model.gated ? 2 : 1) * linear(outer, inner, model.biases) +
         linear(inner, outer, model.biases);
}

double attention_parameters(const Architecture& model) {
  if (model.latent.is_used()) return latent_parameters(model);
  const double queries = static_cast<double>(model.heads) * model.head;
  const double keys = static_cast<double>(model.key_value_heads) * model.head;
  return linear(model.hidden, queries + 2 * keys, model.biases) +
         linear(queries, model.hidden, model.biases);
}

/// The convolution's four taps and its shift, a rate, a shift of the time step and a way past the
/// state for each head, and a norm between.
double mamba_parameters(const Architecture& model) {
  const MambaWidths& mamba = model.mamba;
  return model.hidden * (mamba.entering() + mamba.inner()) + 5 * mamba.convolved() +
         3.0 * mamba.heads + mamba.inner();
}

double block_parameters(const Architecture& model, BlockKind kind, double experts_counted) {
  const double others = kind.parts() * norm_parameters(model) + mixer_parameters(model, kind.mixer);
  switch (kind.feed_forward) {
    case FeedForward::Dense:
      return others + feed_forward_parameters(model);
    case FeedForward::Experts:
      return others + beside_experts_parameters(model) + experts_counted * expert_parameters(model);
    case FeedForward::None:
      return others;
  }
  return others;
}

/// Of the blocks for further tokens: norms of both inputs and of the output, the product of both.
double further_parameters(const Architecture& model, double experts_counted) {
  const double hidden = model.hidden;
  return model.further_tokens * (3 * norm_parameters(model) + 2 * hidden * hidden +
                                 block_parameters(model, model.kind_of_further(), experts_counted));
}

double last_norm_and_matrix(const Architecture& model) {
  const double matrix = model.tied_head ? 0 : static_cast<double>(model.vocabulary) * model.hidden;
  return norm_parameters(model) + matrix;
}

double blocks_and_ends(const Architecture& model, double experts_counted) {
  double sum = embedding_parameters(model) + last_norm_and_matrix(model) +
               further_parameters(model, experts_counted);
  for (int block = 0; block < model.blocks; ++block)
    sum += block_parameters(model, model.kind_of(block), experts_counted);
  return sum;
}

/// Why the pattern is none for these widths; "": it is one.
std::string pattern_fault(const Architecture& model) {
  if (model.pattern.empty()) return "";
  if (model.pattern.size() != static_cast<std::size_t>(model.blocks))
    return "pattern has " + std::to_string(model.pattern.size()) + " letters for " +
           std::to_string(model.blocks) + " layers";
  const std::size_t odd = model.pattern.find_first_not_of("M*-E");
  if (odd != std::string::npos)
    return std::string(
               "pattern has M (Mamba), * (attention), - (feed-forward part) and E "
               "(experts), found \"") +
           model.pattern[odd] + '"';
  if (model.pattern.find('E') != std::string::npos && model.experts.count == 0)
    return "pattern has an E, and there are no experts";
  if (model.pattern.find('M') != std::string::npos && !model.mamba.is_used())
    return "pattern has an M, and there is no mamba";
  if (model.experts.dense_blocks > 0 || model.experts.every > 1 || model.window.full_every > 0)
    return "pattern says which layers have what: leave out dense_layers, every and full_every";
  return "";
}

}  // namespace

BlockKind Architecture::kind_of(int block) const {
  const Mixer attends =
      window.tokens > 0 && (window.full_every == 0 || (block + 1) % window.full_every != 0)
          ? Mixer::Window
          : Mixer::Attention;
  if (!pattern.empty()) {
    switch (pattern[static_cast<std::size_t>(block)]) {
      case 'M':
        return {Mixer::Mamba, FeedForward::None};
      case '*':
        return {attends, FeedForward::None};
      case 'E':
        return {Mixer::None, FeedForward::Experts};
      default:
        return {Mixer::None, FeedForward::Dense};
    }
  }
  const bool with_experts =
      experts.count > 0 && block >= experts.dense_blocks && (block + 1) % experts.every == 0;
  return {attends, with_experts ? FeedForward::Experts : FeedForward::Dense};
}

Architecture gpt_architecture(std::string name, int hidden, int blocks, int heads, int vocabulary,
                              int sequence) {
  Architecture model;
  model.name = std::move(name);
  model.hidden = hidden;
  model.blocks = blocks;
  model.heads = model.key_value_heads = heads;
  model.head = hidden / heads;
  model.ffn = 4 * hidden;
  model.vocabulary = vocabulary;
  model.sequence = sequence;
  model.learned_positions = model.tied_head = true;
  return model;
}

double tokens_seen(const Architecture& model, Mixer mixer) {
  const double all = model.sample_tokens > 0 ? model.sample_tokens : model.sequence;
  const double window = model.window.tokens;
  if (mixer != Mixer::Window || window >= all) return all / 2;
  return window * (all - window / 2) / all;  // at the sequence's start there are fewer
}

double norm_parameters(const Architecture& model) { return norm(model, model.hidden); }

double mixer_parameters(const Architecture& model, Mixer mixer) {
  switch (mixer) {
    case Mixer::Attention:
    case Mixer::Window:
      return attention_parameters(model);
    case Mixer::Mamba:
      return mamba_parameters(model);
    case Mixer::None:
      return 0;
  }
  return 0;
}

double feed_forward_parameters(const Architecture& model) {
  return mlp(model, model.hidden, model.ffn);
}

double expert_parameters(const Architecture& model) {
  return mlp(model, model.experts.outer(model.hidden), model.experts.ffn);
}

double beside_experts_parameters(const Architecture& model) {
  const Experts& set = model.experts;
  const double hidden = model.hidden, router = hidden * set.count;
  const double shared = set.shared_ffn > 0 ? mlp(model, hidden, set.shared_ffn) : 0;
  return router + shared + 2 * hidden * set.latent;
}

double block_parameters(const Architecture& model, BlockKind kind) {
  return block_parameters(model, kind, model.experts.count);
}

double active_block_parameters(const Architecture& model, BlockKind kind) {
  return block_parameters(model, kind, model.experts.chosen);
}

double embedding_parameters(const Architecture& model) {
  const double positions = model.learned_positions ? model.sequence : 0;
  return (model.vocabulary + positions) * model.hidden;
}

double head_parameters(const Architecture& model) {
  return last_norm_and_matrix(model) + further_parameters(model, model.experts.count);
}

double parameters(const Architecture& model) { return blocks_and_ends(model, model.experts.count); }

double lora_block_parameters(const Architecture& model) {
  double sum = 0;
  for (const AdaptedLayer& layer : adapted_layers(model))
    sum += model.lora.rank * (layer.in + layer.out);
  return sum;
}

double trained_parameters(const Architecture& model) {
  return model.lora.is_used() ? model.blocks * lora_block_parameters(model) : parameters(model);
}

double active_parameters(const Architecture& model) {
  return blocks_and_ends(model, model.experts.chosen);
}

void check(const Architecture& model) {
  const auto refuse = [&](const std::string& what) {
    throw InputError("the model \"" + model.name + "\": " + what);
  };
  if (model.hidden < 1 || model.blocks < 1 || model.heads < 1 || model.ffn < 1 ||
      model.vocabulary < 1 || model.sequence < 1) {
    refuse("hidden, layers, heads, ffn, vocabulary and sequence have to be at least 1");
  }
  if (!model.latent.is_used() && model.head < 1) refuse("a head has to be at least 1 wide");
  if (model.sample_tokens > model.sequence)
    refuse("samples of " + std::to_string(model.sample_tokens) +
           " tokens do not fit a sequence of " + std::to_string(model.sequence));
  if (model.key_value_heads < 1 || model.heads % model.key_value_heads != 0) {
    refuse("kv_heads has to divide heads = " + std::to_string(model.heads));
  }
  if (const std::string fault = pattern_fault(model); !fault.empty()) refuse(fault);
  if (model.experts.count > 0 &&
      (model.experts.chosen < 1 || model.experts.chosen > model.experts.count)) {
    refuse("a token goes to 1 to " + std::to_string(model.experts.count) + " experts, found " +
           std::to_string(model.experts.chosen));
  }
  if (const std::string fault = lora_fault(model); !fault.empty()) refuse(fault);
}

}  // namespace pipewright
