// Mixtures of experts, as model.json says how their routers choose (docs/plan-format.md, "Mixtures
// of experts"), and the sizes that follow from it. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

inline constexpr int kMostExperts = 4096;
/// Rows of the longest sequence, once for each of its experts, still fit an int.
inline constexpr int kMostChosenExperts = 64;

/// The keys that read_expert_choice() reads.
std::vector<std::string_view> expert_choice_keys();
/// Throws InputError that names the place.
ExpertChoice read_expert_choice(const JsonCursor& value);
void write_expert_choice(const ExpertChoice& choice, Json& json);

/// Refuses layers that an expert cannot have, by place in the list.
void require_expert_layers(const JsonCursor& list, const std::vector<Layer>& layers);

/// Rows of a micro-batch of so many that an expert takes at most.
std::int64_t expert_capacity(const ExpertChoice& choice, std::int64_t rows);

}  // namespace pipewright
