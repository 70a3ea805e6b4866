// The arrays of weights that a layer trains, with their sizes and how they start: the one place
// that says it. The executor allocates and fills them, the planner counts them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"

namespace pipewright {

/// One array, as it starts: uniform in ±bound, or `value` everywhere where the bound is 0.
struct Weight {
  std::string_view name;  // unique in its layer: "qkv_weight"; of weights_of() a literal
  std::int64_t size = 0;
  float bound = 0, value = 0;
  bool is_statistic = false;  // moves by itself, not by the optimizer (running mean, …)
};

/// The tokens of an embedding, [vocabulary][width].
Weight token_table(int vocabulary, int width);

/// Of a layer that `width` numbers a row go into; without those of the layers inside it. A tied
/// layer's table is its embedding's, and arrays of a user's own layer are its maker's affair.
std::vector<Weight> weights_of(const Layer& layer, int width);
/// Of a layer inside a mixture of so many experts: each array holds those of all experts, one
/// after another.
std::vector<Weight> weights_of_experts(const Layer& layer, int width, int experts);

/// Elements that the layer trains, with those of the layers inside it; of a user's own, as many as
/// the model says. In double, for a large model passes 2^63 before anybody can refuse it.
double parameter_count(const Layer& layer);

}  // namespace pipewright
