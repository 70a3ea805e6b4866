// Small models with eight experts, for tests of ranks that divide these.
#pragma once

#include <vector>

#include "tests/parity/divided/divided_program.hpp"

namespace pipewright::tests {

inline Model mixture(Json changes) {
  Json all = {{"style", "llama"}, {"kv_heads", 4}, {"ffn", 12}, {"experts", 8}, {"top_k", 2}};
  all.update(changes);
  return with_eight_tokens(all);
}
/// What every row goes through besides, and both of the router's losses.
inline Model mixtral() {
  return mixture({{"shared_ffn", 8}, {"balance_loss", 0.05}, {"z_loss", 0.01}});
}
inline void give_biases(std::vector<Layer>& layers) {
  for (Layer& layer : layers) {
    const bool is_mixture = layer.kind == LayerKind::MixtureOfExperts;
    layer.bias |= is_mixture;
    for (Layer& inner : layer.inner) inner.bias |= is_mixture && inner.kind == LayerKind::Linear;
    give_biases(layer.inner);
  }
}
/// Experts that are full drop the rows that come last in the micro-batch; routers and experts have
/// biases.
inline Model dropping() {
  Model model = mixture({{"top_k", 3}, {"capacity_factor", 0.8}});
  give_biases(model.layers);
  return model;
}

}  // namespace pipewright::tests
