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

double mlp(const Architecture& model, double inner) {
  const double hidden = model.hidden;
  return (model.gated ? 2 : 1) * linear(hidden, inner, model.biases) +
         linear(inner, hidden, model.biases);
}

double expert_layer(const Architecture& model, double experts) {
  const double router = static_cast<double>(model.hidden) * model.experts.count;
  const double shared = model.experts.shared_ffn > 0 ? mlp(model, model.experts.shared_ffn) : 0;
  return router + shared + experts * expert_parameters(model);
}

double blocks_and_ends(const Architecture& model, double experts_counted) {
  double sum = embedding_parameters(model) + head_parameters(model);
  for (int block = 0; block < model.blocks; ++block) {
    sum += attention_parameters(model) + (model.has_experts(block)
                                              ? expert_layer(model, experts_counted)
                                              : feed_forward_parameters(model));
  }
  return sum;
}

}  // namespace

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

double attention_parameters(const Architecture& model) {
  const double norms = 2 * norm(model, model.hidden);
  if (model.latent.is_used()) return norms + latent_parameters(model);
  const double queries = static_cast<double>(model.heads) * model.head;
  const double keys = static_cast<double>(model.key_value_heads) * model.head;
  return norms + linear(model.hidden, queries + 2 * keys, model.biases) +
         linear(queries, model.hidden, model.biases);
}

double feed_forward_parameters(const Architecture& model) { return mlp(model, model.ffn); }

double expert_parameters(const Architecture& model) { return mlp(model, model.experts.ffn); }

double block_parameters(const Architecture& model, int block) {
  return attention_parameters(model) + (model.has_experts(block)
                                            ? expert_layer(model, model.experts.count)
                                            : feed_forward_parameters(model));
}

double embedding_parameters(const Architecture& model) {
  const double positions = model.learned_positions ? model.sequence : 0;
  return (model.vocabulary + positions) * model.hidden;
}

double head_parameters(const Architecture& model) {
  const double matrix = model.tied_head ? 0 : static_cast<double>(model.vocabulary) * model.hidden;
  return norm(model, model.hidden) + matrix;
}

double parameters(const Architecture& model) { return blocks_and_ends(model, model.experts.count); }

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
  if (model.key_value_heads < 1 || model.heads % model.key_value_heads != 0) {
    refuse("kv_heads has to divide heads = " + std::to_string(model.heads));
  }
  if (model.experts.count > 0 &&
      (model.experts.chosen < 1 || model.experts.chosen > model.experts.count)) {
    refuse("a token goes to 1 to " + std::to_string(model.experts.count) + " experts, found " +
           std::to_string(model.experts.chosen));
  }
}

}  // namespace pipewright
